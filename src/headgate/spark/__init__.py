"""The data, through public PySpark."""

"""Data files: Parquet and Arrow, read and written in the columns of a table."""

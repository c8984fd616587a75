"""The data, through public PySpark."""

from headgate.spark.lake import Lake
from headgate.spark.sessions import session

__all__ = ["Lake", "session"]

"""The data, through public PySpark."""

from headgate.spark.lake import Lake
from headgate.spark.merge import Clause, Do, When
from headgate.spark.sessions import session

__all__ = ["Clause", "Do", "Lake", "When", "session"]

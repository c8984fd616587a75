"""The data, through public PySpark."""

from headgate.spark.lake import Lake
from headgate.spark.merge import Clause
from headgate.spark.sessions import session
from headgate.sql.statements import Do, When

__all__ = ["Clause", "Do", "Lake", "When", "session"]

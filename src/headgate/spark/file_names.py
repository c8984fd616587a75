"""Names of files between the log and Spark, which spells and reads them its own way.

Spark names a local file `file:/a/b`, percent-encoded; what it is given to read are patterns; and
its file systems have names of their own.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import DataFrame, DataFrameReader

from headgate.errors import UnsupportedFeatureError
from headgate.protocol.actions import AddFile
from headgate.storage import locations
from headgate.storage.locations import data_path

# The option beats the session's setting: a file that is missing must never go unnoticed.
OPTIONS: Final = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "datetimeRebaseMode": "CORRECTED",
    "int96RebaseMode": "CORRECTED",
    "mergeSchema": "false",
    "recursiveFileLookup": "false",
}
# What Java leaves as it is when it spells a path.
_PLAIN: Final = re.compile(r"[A-Za-z0-9/_.!~*'(),:$&+=@;-]*", re.ASCII)
_GLOB: Final = re.compile(r"([{}\[\]*?\\])")
_HADOOP: Final = {"s3": "s3a", "az": "abfss"}


# Relative, nothing to decode, no segment that means another place: most paths there are.
_SIMPLE: Final = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9_.=-]*(?:/[A-Za-z0-9_=-][A-Za-z0-9_.=-]*)*")


def urls_of(location: str, files: Iterable[AddFile]) -> list[str]:
    """Return the normalized URLs of a table's files."""
    base = locations.normalize(location).removesuffix("/")
    return [
        f"{base}/{file.path}" if is_simple(file.path) else _url_of(location, file.path)
        for file in files
    ]


def _url_of(location: str, raw: str) -> str:
    path = data_path(raw)
    if path.is_relative:
        return locations.join(location, path.value)
    return path.value


def hadoop(url: str) -> str:
    """Name a place as Spark does, decoded: `file:` has one slash there."""
    scheme, _, rest = url.partition("://")
    path = locations.decode(rest)
    return f"file:{path}" if scheme == "file" else f"{_HADOOP.get(scheme, scheme)}://{path}"


def is_simple(path: str) -> bool:
    """Whether a path of the log is relative, and spelled just as the file is named."""
    return _SIMPLE.fullmatch(path) is not None


def is_plain(name: str) -> bool:
    """Whether Spark spells a name just so, without encoding any of it."""
    return _PLAIN.fullmatch(name) is not None


def read_named(reader: DataFrameReader, patterns: Sequence[str]) -> DataFrame:
    """Let Spark read many files: named to its JVM in one text, where there is a JVM here."""
    # PySpark itself would call the JVM once for each.
    jvm = getattr(getattr(reader, "_spark", None), "_jvm", None)
    text = "\n".join(patterns)
    if jvm is None or text.count("\n") != len(patterns) - 1:  # a name may have a line of its own
        return reader.parquet(*patterns)
    names = jvm.java.util.regex.Pattern.compile("\n").split(text)
    scanned: DataFrame = reader._df(reader._jreader.parquet(names))
    return scanned


def pattern(name: str) -> str:
    """Write a decoded name so that Spark reads this file and no other."""
    last = name.rpartition("/")[2]
    if last.startswith(("_", ".")):
        raise UnsupportedFeatureError(
            f"Spark passes over files named like {last!r}, so the table cannot be read by it.",
            remedy="Read it with table.to_arrow().",
        )
    return _GLOB.sub(r"\\\1", name)

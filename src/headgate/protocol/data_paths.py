"""Normalize the paths of data files in log actions.

An action's `path` is a URI, relative to the table or absolute, and one file has many spellings:
`/a/b`, `file:/a/b`, `file:///a/b`, `file://localhost/a/b`; `s3a://` for `s3://`; any character
percent-encoded, in either case; doubled slashes and `.` segments, which delta-spark drops. Files
are compared by their normal form; a path is always written as it was read.
"""

import functools
import re
from typing import Final
from urllib.parse import unquote_to_bytes

SCHEME_ALIASES: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "azure": "az"}
# Matches paths that may differ from their normal form, which few do. For use on Arrow columns.
UNUSUAL: Final = r"%|:|//|/\.|^[/.]|^$"

_ABSOLUTE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
_URI: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(.*)", re.DOTALL)
_PLAIN_NAME: Final = re.compile(r"[^%:.][^%:]*")
_DROPPED: Final = re.compile(r"/(?:\.?/)+")


def normal_path(path: str) -> str:
    """Return the normal form of a path, or the path itself if it does not decode to UTF-8."""
    # The same test as UNUSUAL, in the order that is fastest for most paths.
    if (
        "%" not in path
        and ":" not in path
        and "//" not in path
        and "/." not in path
        and path[:1] not in ("", "/", ".")
    ):
        return path
    folder, slash, name = path.rpartition("/")
    if slash and _PLAIN_NAME.fullmatch(name) is not None:
        return _normal_folder(folder) + name  # files of one partition share their folder
    return _normal(path)


def is_absolute(path: str) -> bool:
    """Return True if an action's path is absolute, not relative to the table."""
    return _ABSOLUTE.match(path) is not None


def without_empty_segments(path: str) -> str:
    """Drop doubled slashes and `.` segments from a decoded path."""
    return _DROPPED.sub("/", path).removeprefix("./")


@functools.lru_cache(maxsize=4096)
def _normal_folder(folder: str) -> str:
    return _normal(f"{folder}/_")[:-1]


def _normal(path: str) -> str:
    try:
        decoded = unquote_to_bytes(path).decode()
    except UnicodeError:
        return path
    if not is_absolute(path):
        relative = without_empty_segments(decoded)
        # A relative path that decodes to an absolute one is still a different file.
        return f"./{relative}" if is_absolute(relative) else relative
    scheme, host, rest = "file", "", decoded
    if (found := _URI.fullmatch(decoded)) is not None:
        scheme, host, rest = found[1].lower(), found[2] or "", found[3]
    scheme = SCHEME_ALIASES.get(scheme, scheme)
    if scheme == "file" and host == "localhost":
        host = ""
    return f"{scheme}://{host}{without_empty_segments(rest)}"

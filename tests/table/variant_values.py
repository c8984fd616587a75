"""Variant values -> plain values, by the Parquet encoding; only as far as the tests need it."""

from __future__ import annotations

import base64
import datetime as dt
import struct
from typing import Any

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - what is added says the zone
_INTEGERS = {3: "<b", 4: "<h", 5: "<i", 6: "<q"}


def decoded(metadata: bytes, value: bytes) -> Any:
    """Give a variant as JSON would have it, with times as Spark spells them."""
    return _value(_names(metadata), value, 0)


def _names(metadata: bytes) -> list[str]:
    size = (metadata[0] >> 6) + 1
    count = _unsigned(metadata, 1, size)
    offsets = [_unsigned(metadata, 1 + size * (i + 1), size) for i in range(count + 1)]
    start = 1 + size * (count + 2)
    return [metadata[start + offsets[i] : start + offsets[i + 1]].decode() for i in range(count)]


def _unsigned(raw: bytes, at: int, size: int) -> int:
    return int.from_bytes(raw[at : at + size], "little")


def _value(names: list[str], raw: bytes, at: int) -> Any:
    kind, header = raw[at] & 3, raw[at] >> 2
    match kind:
        case 0:
            return _primitive(header, raw, at + 1)
        case 1:
            return raw[at + 1 : at + 1 + header].decode()
        case 2:
            return _object(names, header, raw, at + 1)
        case _:
            return _array(names, header, raw, at + 1)


def _primitive(kind: int, raw: bytes, at: int) -> Any:
    if kind in _INTEGERS:
        return struct.unpack_from(_INTEGERS[kind], raw, at)[0]
    match kind:
        case 0:
            return None
        case 1 | 2:
            return kind == 1
        case 7:
            return struct.unpack_from("<d", raw, at)[0]
        case 8 | 9 | 10:
            size = {8: 4, 9: 8, 10: 16}[kind]
            digits = int.from_bytes(raw[at + 1 : at + 1 + size], "little", signed=True)
            return digits / 10 ** raw[at]
        case 11:
            days = struct.unpack_from("<i", raw, at)[0]
            return str((_EPOCH + dt.timedelta(days=days)).date())
        case 12 | 13:
            micros = struct.unpack_from("<q", raw, at)[0]
            text = str(_EPOCH + dt.timedelta(microseconds=micros))
            return f"{text}+00:00" if kind == 12 else text
        case 14:
            return struct.unpack_from("<f", raw, at)[0]
        case 15:
            size = _unsigned(raw, at, 4)
            return base64.b64encode(raw[at + 4 : at + 4 + size]).decode()
        case 16:
            return raw[at + 4 : at + 4 + _unsigned(raw, at, 4)].decode()
        case _:
            raise ValueError(f"a variant of kind {kind}")


def _object(names: list[str], header: int, raw: bytes, at: int) -> dict[str, Any]:
    offset_size, id_size = (header & 3) + 1, (header >> 2 & 3) + 1
    count_size = 4 if header >> 4 & 1 else 1
    count = _unsigned(raw, at, count_size)
    ids = at + count_size
    offsets = ids + count * id_size
    values = offsets + (count + 1) * offset_size
    return {
        names[_unsigned(raw, ids + i * id_size, id_size)]: _value(
            names, raw, values + _unsigned(raw, offsets + i * offset_size, offset_size)
        )
        for i in range(count)
    }


def _array(names: list[str], header: int, raw: bytes, at: int) -> list[Any]:
    offset_size = (header & 3) + 1
    count_size = 4 if header >> 2 & 1 else 1
    count = _unsigned(raw, at, count_size)
    offsets = at + count_size
    values = offsets + (count + 1) * offset_size
    return [
        _value(names, raw, values + _unsigned(raw, offsets + i * offset_size, offset_size))
        for i in range(count)
    ]

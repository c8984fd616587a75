"""Encode and decode deletion vectors and their descriptors; files are the caller's."""

import base64
import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyroaring import BitMap64

from headgate.errors import InvalidArgumentError, MalformedError
from headgate.protocol.actions import DeletionVector

INLINE = "i"
RELATIVE = "u"
ABSOLUTE = "p"

_MAGIC = struct.pack("<I", 1681511377)
_OLDER_MAGIC = 1681511376  # an older format; the protocol's own example has it
_FILE_VERSION = b"\x01"
_UUID_LENGTH = 20
_GREATEST = 2**63 - 1  # other readers use signed numbers


# Row positions and bytes


def encode(rows: Iterable[int]) -> bytes:
    """Encode row positions in the format of both files and descriptors."""
    bitmap = rows.copy() if isinstance(rows, BitMap64) else BitMap64(rows)
    if bitmap and bitmap.max() > _GREATEST:
        raise InvalidArgumentError(f"Row {bitmap.max()} is too great for a deletion vector.")
    bitmap.run_optimize()
    return _MAGIC + bitmap.serialize()


def decode(encoded: bytes, cardinality: int | None = None) -> BitMap64:
    """Decode row positions, and check their number against the descriptor."""
    try:
        if encoded[:4] == _MAGIC:
            bitmap = BitMap64.deserialize(encoded[4:])
        else:
            bitmap = _decode_older(encoded)
        greatest = bitmap.max() if bitmap else 0
    except (ValueError, IndexError, OverflowError, MemoryError, struct.error) as error:
        raise MalformedError(f"A deletion vector's bitmap cannot be read: {error}.") from error
    if greatest > _GREATEST:
        raise MalformedError(f"A deletion vector marks row {greatest}, which is too great.")
    if cardinality is not None and len(bitmap) != cardinality:
        raise MalformedError(f"A deletion vector has {len(bitmap)} rows, not {cardinality}.")
    return bitmap


def _decode_older(encoded: bytes) -> BitMap64:
    order = next(
        (order for order in "<>" if encoded[:4] == struct.pack(f"{order}I", _OLDER_MAGIC)), None
    )
    if order is None:
        raise MalformedError(f"A deletion vector begins with {encoded[:4].hex()!r}.")
    (buckets,) = struct.unpack_from(f"{order}i", encoded, 4)
    bitmap, position = BitMap64(), 8
    for key in range(buckets):
        (size,) = struct.unpack_from(f"{order}i", encoded, position)
        bucket = encoded[position + 4 : position + 4 + size]
        if size < 0 or len(bucket) != size:
            raise MalformedError("A deletion vector's bitmap ends too early.")
        portable = struct.pack("<QI", 1, key) + bucket
        bitmap |= BitMap64.deserialize(portable)
        position += 4 + size
    return bitmap


# Descriptors


def is_inline(descriptor: DeletionVector) -> bool:
    """Return True if the vector is in the descriptor itself, not in a file."""
    return descriptor.storage_type == INLINE


def path_of(descriptor: DeletionVector, table_root: str) -> str:
    """Return the path of a vector's file: relative if it is below the table's root."""
    text = descriptor.path_or_inline_dv
    match descriptor.storage_type:
        case "u":
            prefix, name = text[:-_UUID_LENGTH], text[-_UUID_LENGTH:]
            if re.fullmatch(r"[A-Za-z0-9_-]*", prefix, re.ASCII) is None:
                raise MalformedError(f"A deletion vector's path has the prefix {prefix!r}.")
            raw = z85_decode(name)
            if len(raw) != 16:
                raise MalformedError(
                    f"A deletion vector's path ends in {name!r}, which is not a UUID."
                )
            return _relative_path(UUID(bytes=raw), prefix)
        case "p":
            root = table_root.rstrip("/") + "/"
            return text.removeprefix(root)
        case other:
            raise MalformedError(f"A deletion vector of storage type {other!r} has no file.")


def byte_range(descriptor: DeletionVector) -> tuple[int, int]:
    """Return offset and length of the bytes that `read_stored` needs."""
    return descriptor.offset or 0, descriptor.size_in_bytes + 8


def read_inline(descriptor: DeletionVector) -> BitMap64:
    """Decode the row positions in a descriptor."""
    if descriptor.storage_type != INLINE:
        raise MalformedError(f"Storage type {descriptor.storage_type!r} is not inline.")
    encoded = _z85_decode_padded(descriptor.path_or_inline_dv, descriptor.size_in_bytes)
    return decode(encoded, descriptor.cardinality)


def read_stored(descriptor: DeletionVector, part: bytes) -> BitMap64:
    """Decode the row positions from the part of a file given by `byte_range`."""
    size = descriptor.size_in_bytes
    if size < 0 or len(part) != size + 8:
        raise MalformedError(f"A deletion vector's file holds {len(part)} of {size + 8} bytes.")
    (stored_size,) = struct.unpack_from(">i", part)
    if stored_size != size:
        raise MalformedError(f"A deletion vector has {stored_size} bytes, not {size}.")
    encoded = part[4 : 4 + size]
    (checksum,) = struct.unpack_from(">I", part, 4 + size)
    if zlib.crc32(encoded) != checksum:
        raise MalformedError("A deletion vector's checksum does not match its bytes.")
    return decode(encoded, descriptor.cardinality)


# Writing


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file of vectors to write, and the descriptors that refer to them, in order."""

    path: str
    content: bytes
    descriptors: tuple[DeletionVector, ...]


def vector_file(vectors: Sequence[Iterable[int]], uuid: UUID, prefix: str = "") -> VectorFile:
    """Create a file of several vectors, relative to the table's root."""
    parts = [_FILE_VERSION]
    descriptors: list[DeletionVector] = []
    offset = 1
    for rows in vectors:
        encoded = encode(rows)
        descriptors.append(
            DeletionVector(
                storage_type=RELATIVE,
                path_or_inline_dv=prefix + z85_encode(uuid.bytes),
                offset=offset,
                size_in_bytes=len(encoded),
                cardinality=len(decode(encoded)),
            )
        )
        parts += [struct.pack(">i", len(encoded)), encoded, struct.pack(">I", zlib.crc32(encoded))]
        offset += len(encoded) + 8
    return VectorFile(_relative_path(uuid, prefix), b"".join(parts), tuple(descriptors))


def _relative_path(uuid: UUID, prefix: str) -> str:
    name = f"deletion_vector_{uuid}.bin"
    return f"{prefix}/{name}" if prefix else name


# Z85 and Python's base 85 differ only in their alphabets.
_PYTHON = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85 = bytes.maketrans(_PYTHON, _Z85)
_FROM_Z85 = bytes.maketrans(_Z85, _PYTHON)
_LETTERS = frozenset(_Z85)


def z85_encode(raw: bytes) -> str:
    """Encode bytes as Z85; their number must be a multiple of four."""
    if len(raw) % 4:
        raise InvalidArgumentError(f"Z85 encodes multiples of four bytes, not {len(raw)}.")
    return base64.b85encode(raw).translate(_TO_Z85).decode()


def z85_decode(text: str) -> bytes:
    """Decode Z85."""
    if len(text) % 5 or not text.isascii() or not _LETTERS.issuperset(text.encode()):
        raise MalformedError(f"{text[:50]!r} is not Z85.")
    try:
        return base64.b85decode(text.encode().translate(_FROM_Z85))
    except ValueError as error:
        raise MalformedError(f"{text[:50]!r} is not Z85: {error}.") from error


def _z85_decode_padded(text: str, size: int) -> bytes:
    """Decode the first `size` bytes of Z85; the rest is padding, which differs between writers."""
    # Padding may be any characters, more than needed, or left out. As in Delta's own decoder, a
    # padded block beyond 32 bits loses its upper bits.
    if not text.isascii() or not _LETTERS.issuperset(text.encode()):
        raise MalformedError(f"{text[:50]!r} is not Z85.")
    blocks, rest = divmod(size, 4)
    tail = text[5 * blocks : 5 * blocks + 5].encode()
    if size < 0 or len(text) < 5 * blocks or len(tail) < rest + (rest > 0):
        raise MalformedError(f"An inline deletion vector has fewer than {size} bytes.")
    whole = z85_decode(text[: 5 * blocks])
    value = 0
    for letter in tail.ljust(5, _Z85[-1:]):
        value = value * 85 + _Z85.index(letter)
    return whole + struct.pack(">I", value & 0xFFFFFFFF)[:rest]

import struct
import zlib
from collections.abc import Callable
from uuid import UUID

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from headgate.errors import InvalidArgumentError, MalformedError
from headgate.protocol import deletion_vectors as vectors
from headgate.protocol.actions import DeletionVector
from tests.kit.builders import inline_vector

relaxed = settings(deadline=None)
ID = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")


def read_from(descriptor: DeletionVector, content: bytes) -> BitMap64:
    offset, length = vectors.byte_range(descriptor)
    return vectors.read_stored(descriptor, content[offset : offset + length])


# Close together, far apart, in runs, and beyond 32 bits.
positions = st.one_of(
    st.lists(st.integers(0, 2**63 - 1), max_size=20),
    st.lists(st.integers(0, 200), max_size=50),
    st.builds(
        lambda start, count: list(range(start, start + count)),
        st.integers(0, 2**40),
        st.integers(0, 5_000),
    ),
).map(lambda rows: sorted(set(rows)))


def replaced(descriptor: DeletionVector, **fields: object) -> DeletionVector:
    return msgspec.structs.replace(descriptor, **fields)


@given(positions)
@relaxed
def test_rows_come_back_from_their_bytes(rows: list[int]) -> None:
    assert vectors.decode(vectors.encode(rows), len(rows)).to_array().tolist() == rows


@given(positions)
@relaxed
def test_rows_come_back_from_an_inline_descriptor(rows: list[int]) -> None:
    descriptor = inline_vector(rows)
    assert vectors.is_inline(descriptor)
    assert descriptor.cardinality == len(rows)
    assert descriptor.offset is None
    assert list(vectors.read_inline(descriptor)) == rows


@given(st.lists(positions, max_size=4), st.sampled_from(["", "ab", "x-1_"]))
@relaxed
def test_rows_come_back_from_a_file_of_several_vectors(many: list[list[int]], prefix: str) -> None:
    file = vectors.vector_file(many, ID, prefix)
    assert len(file.descriptors) == len(many)
    for rows, descriptor in zip(many, file.descriptors, strict=True):
        assert vectors.path_of(descriptor, "s3://bucket/table") == file.path
        assert list(read_from(descriptor, file.content)) == rows


def test_a_file_is_laid_out_as_the_protocol_says() -> None:
    file = vectors.vector_file([[3, 4], [2**33]], ID)
    first, second = (vectors.encode(rows) for rows in ([3, 4], [2**33]))
    assert file.content == b"".join(
        [
            b"\x01",
            struct.pack(">i", len(first)) + first + struct.pack(">I", zlib.crc32(first)),
            struct.pack(">i", len(second)) + second + struct.pack(">I", zlib.crc32(second)),
        ]
    )
    assert [d.offset for d in file.descriptors] == [1, 1 + len(first) + 8]
    assert first[:4] == struct.pack("<I", 1681511377)


def test_the_protocols_inline_example_is_read() -> None:
    descriptor = DeletionVector(
        storage_type="i",
        path_or_inline_dv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
        size_in_bytes=40,
        cardinality=6,
    )
    assert list(vectors.read_inline(descriptor)) == [3, 4, 7, 11, 18, 29]


PADDED = [
    pytest.param(lambda text: text[:-1] + "#", id="other letters"),
    pytest.param(lambda text: text + "#####", id="another block, beyond 32 bits"),
    pytest.param(lambda text: text + "00000" * 3, id="more blocks"),
    pytest.param(lambda text: text[:-1], id="left out"),
]


@pytest.mark.parametrize("padded", PADDED)
@pytest.mark.parametrize("rows", [[1], [0, 5, 70_000], list(range(100))])
def test_an_inline_vector_is_read_however_its_end_is_padded(
    rows: list[int], padded: Callable[[str], str]
) -> None:
    encoded = vectors.encode(rows)
    assert len(encoded) % 4
    descriptor = inline_vector(rows)
    other = replaced(descriptor, path_or_inline_dv=padded(descriptor.path_or_inline_dv))
    assert list(vectors.read_inline(other)) == rows


def test_an_inline_vector_whose_padded_block_is_beyond_32_bits_loses_the_upper_bits() -> None:
    descriptor = inline_vector([1])
    text, size = descriptor.path_or_inline_dv, descriptor.size_in_bytes
    assert size % 4 == 2
    first_two = vectors.z85_decode(text)[-4:-2]
    beyond = int.from_bytes(first_two, "big") * 2**16 + 2**32
    assert beyond < 85**5
    letters = [beyond // 85**place % 85 for place in (4, 3, 2, 1, 0)]
    tail = bytes(vectors._Z85[letter] for letter in letters).decode()
    other = replaced(descriptor, path_or_inline_dv=text[:-5] + tail)
    assert list(vectors.read_inline(other)) == [1]


@pytest.mark.parametrize("lost", [5, 4, 3, 2])
def test_an_inline_vector_that_lost_bytes_is_refused(lost: int) -> None:
    descriptor = inline_vector([0, 5, 70_000])
    size = 4 * (len(descriptor.path_or_inline_dv) // 5) - 1
    assert descriptor.size_in_bytes <= size
    short = replaced(
        descriptor, path_or_inline_dv=descriptor.path_or_inline_dv[:-lost], size_in_bytes=size
    )
    with pytest.raises(MalformedError, match="fewer than"):
        vectors.read_inline(short)


def test_the_protocols_paths_are_found() -> None:
    relative = DeletionVector(
        storage_type="u",
        path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^",
        offset=4,
        size_in_bytes=40,
        cardinality=6,
    )
    name = f"deletion_vector_{ID}.bin"
    assert vectors.path_of(relative, "s3://mytable") == f"ab/{name}"
    plain = replaced(relative, path_or_inline_dv="^-aqEH.-t@S}K{vb[*k^")
    assert vectors.path_of(plain, "s3://mytable") == name
    absolute = replaced(relative, storage_type="p", path_or_inline_dv=f"s3://mytable/{name}")
    assert vectors.path_of(absolute, "s3://mytable/") == name
    assert vectors.path_of(absolute, "s3://myt") == f"s3://mytable/{name}"


def test_empty_buckets_that_other_writers_leave_are_read() -> None:
    buckets = [(0, BitMap()), (1, BitMap([5]))]
    encoded = struct.pack("<IQ", 1681511377, len(buckets)) + b"".join(
        struct.pack("<I", key) + bitmap.serialize() for key, bitmap in buckets
    )
    assert list(vectors.decode(encoded)) == [2**32 + 5]


def test_the_older_layout_is_read_beyond_32_bits() -> None:
    buckets = [bitmap.serialize() for bitmap in (BitMap([1]), BitMap(), BitMap([2]))]
    encoded = struct.pack("<Ii", 1681511376, len(buckets)) + b"".join(
        struct.pack("<i", len(bucket)) + bucket for bucket in buckets
    )
    assert list(vectors.decode(encoded)) == [1, 2**33 + 2]


# What is malformed


@pytest.mark.parametrize(
    "encoded",
    [
        b"",
        b"\x00\x00\x00\x00",
        struct.pack("<I", 1681511378) + bytes(8),
        struct.pack("<I", 1681511377),
        struct.pack("<IQ", 1681511377, 1),
        struct.pack("<Ii", 1681511376, 2**31 - 1),
        struct.pack("<Iii", 1681511376, 1, -5),
    ],
)
def test_bytes_that_are_no_vector_are_malformed(encoded: bytes) -> None:
    with pytest.raises(MalformedError):
        vectors.decode(encoded)


@given(st.binary(max_size=60))
@relaxed
def test_any_bytes_after_the_magic_are_rows_or_malformed(tail: bytes) -> None:
    for magic in (1681511377, 1681511376):
        try:
            rows = vectors.decode(struct.pack("<I", magic) + tail)
        except MalformedError:
            continue
        assert len(rows) == len(rows.to_array())


def test_a_row_beyond_signed_64_bits_is_refused() -> None:
    with pytest.raises(InvalidArgumentError):
        vectors.encode([2**63])
    huge = struct.pack("<IQI", 1681511377, 1, 2**31) + BitMap([0]).serialize()
    with pytest.raises(MalformedError, match=str(2**63)):
        vectors.decode(huge)


def test_another_number_of_rows_than_the_descriptor_says_is_malformed() -> None:
    file = vectors.vector_file([[1, 2, 3]], ID)
    (descriptor,) = file.descriptors
    with pytest.raises(MalformedError, match="3 rows, not 4"):
        read_from(replaced(descriptor, cardinality=4), file.content)
    with pytest.raises(MalformedError, match="3 rows, not 2"):
        vectors.read_inline(replaced(inline_vector([1, 2, 3]), cardinality=2))


@given(st.data())
@relaxed
def test_any_changed_byte_of_a_vector_in_a_file_is_noticed(data: st.DataObject) -> None:
    file = vectors.vector_file([[1, 70_000, 2**40]], ID)
    (descriptor,) = file.descriptors
    at = data.draw(st.integers(descriptor.offset or 0, len(file.content) - 1))
    flipped = data.draw(st.integers(1, 255))
    content = bytearray(file.content)
    content[at] ^= flipped
    with pytest.raises(MalformedError):
        read_from(descriptor, bytes(content))


def test_a_file_cut_short_is_malformed() -> None:
    file = vectors.vector_file([[1, 2, 3]], ID)
    for length in range(len(file.content)):
        with pytest.raises(MalformedError):
            read_from(file.descriptors[0], file.content[:length])


@pytest.mark.parametrize(
    "fields",
    [
        {"offset": -1},
        {"offset": 2**31 - 1},
        {"size_in_bytes": -3},
        {"size_in_bytes": 2**31 - 1},
        {"size_in_bytes": 5},
    ],
)
def test_a_descriptor_that_points_elsewhere_is_malformed(fields: dict[str, int]) -> None:
    file = vectors.vector_file([[1, 2, 3]], ID)
    with pytest.raises(MalformedError):
        read_from(replaced(file.descriptors[0], **fields), file.content)


@pytest.mark.parametrize(
    ("storage_type", "text"),
    [
        ("i", "0000000000"),
        ("x", "s3://bucket/file"),
        ("u", "short"),
        ("u", "../..^-aqEH.-t@S}K{vb[*k^"),
        ("u", "a/b^-aqEH.-t@S}K{vb[*k^"),
        ("u", "é^-aqEH.-t@S}K{vb[*k^"),
        ("u", "####################"),
        ("u", "~~~~~~~~~~~~~~~~~~~~"),
    ],
)
def test_a_descriptor_without_a_sound_path_is_malformed(storage_type: str, text: str) -> None:
    descriptor = DeletionVector(
        storage_type=storage_type, path_or_inline_dv=text, size_in_bytes=4, cardinality=1
    )
    with pytest.raises(MalformedError):
        vectors.path_of(descriptor, "s3://bucket/table")


def test_a_stored_vector_is_not_read_as_inline() -> None:
    (descriptor,) = vectors.vector_file([[1]], ID).descriptors
    with pytest.raises(MalformedError, match="not inline"):
        vectors.read_inline(descriptor)


def test_an_inline_vector_of_another_size_is_malformed() -> None:
    descriptor = inline_vector([1, 2, 3])
    for size in (-1, 0, descriptor.size_in_bytes - 4, descriptor.size_in_bytes + 4):
        with pytest.raises(MalformedError):
            vectors.read_inline(replaced(descriptor, size_in_bytes=size))


# Z85


def test_z85_is_spelled_as_its_standard_says() -> None:
    assert vectors.z85_encode(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"
    assert vectors.z85_decode("HelloWorld") == bytes.fromhex("864FD26FB559F75B")


@given(st.binary(max_size=40).map(lambda raw: raw[: len(raw) // 4 * 4]))
@relaxed
def test_bytes_come_back_from_z85(raw: bytes) -> None:
    assert vectors.z85_decode(vectors.z85_encode(raw)) == raw


@pytest.mark.parametrize("text", ["a", "aaaaaa", "aaaa~", "aaaa ", "aaaaé", "#####"])
def test_what_is_no_z85_is_malformed(text: str) -> None:
    with pytest.raises(MalformedError):
        vectors.z85_decode(text)


def test_z85_takes_bytes_by_fours() -> None:
    with pytest.raises(InvalidArgumentError):
        vectors.z85_encode(b"abc")

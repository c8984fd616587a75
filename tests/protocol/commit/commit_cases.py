"""Commits and table states shared by the tests of examination and admission."""

from __future__ import annotations

import msgspec
from hypothesis import settings

from headgate.protocol.actions import (
    Action,
    AddFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    TableId,
    TxnId,
    Version,
    encode,
)
from headgate.protocol.commit.admission import judge
from headgate.protocol.commit.examination import Examined, Violation, examine_file
from headgate.protocol.commit.facts import Head
from headgate.protocol.commit.inline_content import compose
from headgate.protocol.expressions.schema_text import parse_schema
from headgate.protocol.schema.column_mapping import MAPPING_ID, MAPPING_NAME
from headgate.protocol.schema.types import StructField, StructType, to_json
from tests.kit.builders import START_MS, add, file_content, metadata, protocol

TABLE = TableId("11111111-1111-4111-8111-111111111111")
OTHER = TableId("22222222-2222-4222-8222-222222222222")
TXN = TxnId("01953a3c-0000-7000-8000-000000000001")
PREVIOUS_MS = START_MS - 1_000
MAX_AHEAD_MS = 300_000
INFO = b'{"commitInfo":{"inCommitTimestamp":1772000000000,"txnId":"%s"}}\n' % TXN.encode()
ADD = encode(add("part-0.parquet")) + b"\n"


def rules(violations: list[Violation] | tuple[Violation, ...]) -> list[str]:
    return [violation.rule for violation in violations]


def in_file(*actions: Action, timestamp_ms: int = START_MS, **info: object) -> Examined:
    content = file_content(*actions, txn_id=TXN, timestamp_ms=timestamp_ms, **info)
    return examine_file(content, len(content))


def facts(
    *features: str,
    before: Metadata | None = None,
    row_id_high_water: int | None = None,
    **properties: str,
) -> Head:
    return Head(
        table_id=TABLE,
        version=Version(6),
        timestamp_ms=PREVIOUS_MS,
        protocol=protocol(*features),
        metadata=before or metadata(TABLE, properties=properties),
        row_id_high_water=row_id_high_water,
    )


def judged(examined: Examined, known: Head | None = None) -> list[str]:
    assert examined.violations == ()
    return rules(judge(examined, known or facts(), now_ms=START_MS, txn_id=TXN))


ODD_AND_READABLE = [
    b'{"x":{"y":9223372036854775807,"z":-9223372036854775808}}',
    b'{"x":{"y":12345678901234567890123.5,"z":1e300}}',
    b'{"x":"12345678901234567890123"}',
    b'{ "x" : { "a\\\\" : 1 , "b\\":" : ":" } }',
    b'{"x":{"a":1,"b":{"a":1,"b":{"a":1}}}}',
    b'{"x":"\\u003a \\u003A : \\":"}',
    b'{"x":"\\ud83d\\ude00 \xf0\x9f\x98\x80"}',
    b'{"deep":' + b"[" * 63 + b"]" * 63 + b"}",
]
VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="ab" * 10, offset=1, size_in_bytes=40, cardinality=1
)
FILE = add("part-0.parquet", records=10)


def with_vector(vector: DeletionVector | None = VECTOR, **changes: object) -> AddFile:
    return msgspec.structs.replace(FILE, deletion_vector=vector, **changes)


def at(path: str) -> AddFile:
    return msgspec.structs.replace(FILE, path=path)


PROTOCOL = protocol()
METADATA = metadata(TABLE)
DOMAIN = DomainMetadata(domain="mine", configuration="{}", removed=False)


def lists(reader: list[str], writer: list[str]) -> Protocol:
    return Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=reader,
        writer_features=writer,
    )


READER, WRITER = PROTOCOL.reader_features or [], PROTOCOL.writer_features or []


def without(*names: str) -> Protocol:
    return lists(
        [name for name in READER if name not in names],
        [name for name in WRITER if name not in names],
    )


def changed(**changes: object) -> Metadata:
    return msgspec.structs.replace(METADATA, **changes)


def configured(**properties: str | None) -> Metadata:
    merged = {**METADATA.configuration, **properties}
    kept = {key: value for key, value in merged.items() if value is not None}
    return changed(configuration=kept)


def mapped(
    mode: str | None = "name",
    *columns: tuple[str, int | None, str],
    greatest: int | None = 2,
    partition_by: str | None = None,
) -> Metadata:
    fields = tuple(
        StructField(
            name,
            parse_schema("x long").fields[0].type,
            True,
            {MAPPING_NAME: physical, **({} if number is None else {MAPPING_ID: number})},
        )
        for name, number, physical in columns or (("id", 1, "col-1"), ("day", 2, "col-2"))
    )
    properties = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": greatest}
    return msgspec.structs.replace(
        METADATA,
        schema_string=to_json(StructType(fields)),
        partition_columns=[] if partition_by is None else [partition_by],
        configuration={
            **METADATA.configuration,
            **{key: str(value) for key, value in properties.items() if value is not None},
        },
    )


def composed(examined: Examined, **changes: object) -> tuple[bytes, int | None]:
    given: dict[str, object] = {
        "txn_id": TXN,
        "timestamp_ms": START_MS,
        "version": Version(7),
        "row_id_high_water": None,
        **changes,
    }
    return compose(examined, **given)  # type: ignore[arg-type]  # each is of its own type


TRACKED = ("rowTracking", "domainMetadata")


def tracked(**changes: object) -> AddFile:
    given = {"base_row_id": 100, "default_row_commit_version": 7, **changes}
    return msgspec.structs.replace(FILE, **given)


relaxed = settings(deadline=None)

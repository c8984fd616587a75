"""A text that is not valid Unicode is refused by every port of every kind of catalog."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headgate.api.messages import Part, Proposal
from headgate.client.transaction import OperationInfo
from headgate.errors import (
    HeadgateError,
    InvalidArgumentError,
    MalformedError,
    UnavailableError,
)
from headgate.names import SchemaName, TableName
from headgate.protocol.actions import SetTransaction, TableId, TxnId, Version
from headgate.protocol.commit.conflicts import Scan
from headgate.protocol.commit.content import Inline, Put, Staged
from headgate.protocol.encoding import replaced
from headgate.protocol.log.known_files import FileKind, KnownFile
from headgate.protocol.paths import StagedCommit
from tests.client.conftest import World, worlds
from tests.kit.builders import (
    add,
    file_content,
    inline,
    metadata,
    new_table_id,
    new_txn_id,
    protocol,
)
from tests.kit.invalid_texts import INVALID, places, spoiled

NAME, OTHER = TableName.parse("orders"), TableName.parse("sales.others")
NAMESPACE = SchemaName.parse("sales")
CHECKPOINT = "_delta_log/00000000000000000000.checkpoint.parquet"


@pytest.fixture(params=["embedded", "filesystem", "server"])
def any_world(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[World]:
    yield from worlds(request.param, tmp_path)


def proposals(world: World, table_id: TableId) -> list[Proposal]:
    txn_id = new_txn_id()
    scans = (Scan(table_id=table_id, version=Version(0), files=("a.parquet",)),)
    content: Inline | Put = inline(add(), engineInfo="x", operationParameters={"mode": "Append"})
    if world.only_puts:
        content = Put(content=file_content(add(), txn_id=txn_id))
    staged = Staged(file_name=StagedCommit(Version(1), uuid.uuid4()).name, size=9)
    return [
        Proposal(
            txn_id=txn_id,
            parts=(Part(table_id=table_id, version=Version(1), content=part),),
            scans=scans,
        )
        for part in ((content,) if world.only_puts else (staged, content))
    ]


def calls(world: World, table_id: TableId) -> list[tuple[str, tuple[Any, ...]]]:
    """Return calls of every port that takes texts."""
    new_id = new_table_id()
    first = inline(protocol(), metadata(new_id, "id long", (), {"a": "b"}), operation="CREATE")
    file = KnownFile(
        kind=FileKind.CHECKPOINT, first=Version(0), last=Version(0), paths=(CHECKPOINT,)
    )
    found: list[tuple[str, tuple[Any, ...]]] = [
        *(("propose", (proposal,)) for proposal in proposals(world, table_id)),
        ("create_table", (OTHER, new_id, new_txn_id(), first)),
        ("resolve", (table_id,)),
        ("resolve", (NAME,)),
        ("resolve_many", ([NAME],)),
        ("ratified_commits", (table_id,)),
        ("outcome", (TxnId("x"),)),
        ("timeline", (table_id,)),
        ("publish", (table_id,)),
        ("confirm_published", (table_id, Version(0))),
        ("add_file", (table_id, file)),
        ("create_namespace", (NAMESPACE,)),
        ("drop_namespace", (NAMESPACE,)),
        ("rename_namespace", (NAMESPACE, "other")),
        ("rename_catalog", ("main", "other")),
        ("tables", (NAMESPACE,)),
        ("rename_table", (table_id, OTHER)),
        ("drop_table", (table_id,)),
        ("undrop_table", (table_id, OTHER)),
        ("purge_table", (table_id,)),
        ("stage_table", ("file:///elsewhere",)),
        ("register_table", (OTHER, new_id)),
        ("register_external", (OTHER, "file:///elsewhere", "delta")),
        ("put_listener", ("x", "https://example.com/")),
        ("delete_listener", ("x",)),
        ("create_token", ("x",)),
        ("revoke_token", ("x",)),
        ("add_location", ("file:///elsewhere",)),
        ("remove_location", ("file:///elsewhere",)),
        ("backup", ("copy.db",)),
        ("fsck", (table_id,)),
    ]
    return [(port, arguments) for port, arguments in found if hasattr(world.catalog, port)]


def test_no_text_that_is_not_unicode_ends_in_an_error_of_python(any_world: World) -> None:
    table_id = any_world.make().id
    wrong = []
    for port, arguments in calls(any_world, table_id):
        for place in places(arguments):
            try:
                getattr(any_world.catalog, port)(*spoiled(arguments, place))
            except UnavailableError as error:
                wrong.append(f"{port} {place}: {error!r}")
            except HeadgateError:
                pass
            except Exception as error:
                wrong.append(f"{port} {place}: {error!r}")
    assert wrong == []


def test_a_txn_id_that_is_not_unicode_makes_no_proposal(any_world: World) -> None:
    table = any_world.make()
    [*_, proposal] = proposals(any_world, table.id)
    with pytest.raises(InvalidArgumentError, match=r"txnId .* is not valid Unicode"):
        replaced(proposal, txn_id=TxnId(INVALID))


def test_a_commit_with_a_text_that_is_not_unicode_is_refused_and_changes_nothing(
    any_world: World,
) -> None:
    table = any_world.make()
    base = table.snapshot()
    actions = (add(), SetTransaction(app_id="stream", version=1))
    operation = OperationInfo("WRITE", {"mode": "Append"})
    arguments = (actions, operation, (), new_txn_id())
    for place in places(arguments):
        changed, info, scans, txn_id = spoiled(arguments, place)
        with pytest.raises((InvalidArgumentError, MalformedError), match=r"Unicode|surrogate"):
            table.commit(base, changed, info, scans, txn_id=txn_id)
    assert table.newest_seen.version == any_world.catalog.resolve(table.id).latest == 0

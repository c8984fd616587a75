"""Creation of tables, in one request or in three."""

from collections.abc import Callable, Sequence

from headgate.api.messages import Resolved
from headgate.api.port import Registry, require
from headgate.client.table_definition import (
    Fill,
    PendingTable,
    TableDefinition,
    added_metrics,
    table_operation,
    version_zero,
)
from headgate.client.transaction import Committer, OperationInfo, commit_info
from headgate.errors import AlreadyExistsError
from headgate.failpoints import fail_point
from headgate.names import TableName
from headgate.protocol import features
from headgate.protocol.actions import Action, AddFile, TableId, Version, encode, join
from headgate.protocol.commit import examination, inline_content
from headgate.protocol.commit.conflicts import Isolation
from headgate.protocol.commit.content import Inline
from headgate.protocol.paths import PublishedCommit
from headgate.storage.object_store import ObjectStore


def create_in_one(
    committer: Committer, name: TableName, definition: TableDefinition, operation: str
) -> Resolved:
    """Create name and version 0 in one request. Spec: LC-01."""
    registry = require(committer.catalog, Registry)
    table_id, txn_id = TableId(str(committer.ids.random())), committer.new_txn_id()
    protocol, metadata = version_zero(definition, table_id, committer.clock.now_ms(), committer.ids)
    first = _content(table_operation(operation, metadata), protocol, metadata)
    return committer.settle(txn_id, lambda: registry.create_table(name, table_id, txn_id, first))


def create_in_three(
    committer: Committer,
    store_for: Callable[[str], ObjectStore],
    name: TableName,
    definition: TableDefinition,
    operation: str,
    fill: Fill | None = None,
) -> Resolved:
    """Stage a table without a name, write version 0, register it. Spec: CM-39, CM-37."""
    registry = require(committer.catalog, Registry)
    staging = registry.stage_table(namespace=name.namespace)
    txn_id = committer.new_txn_id()
    store = store_for(staging.location)
    protocol, metadata = version_zero(
        definition, staging.table_id, committer.clock.now_ms(), committer.ids
    )
    files: Sequence[AddFile] = ()
    metrics = {}
    if fill is not None:
        files = fill(PendingTable(staging.location, store, protocol, metadata))
        metrics = added_metrics(files)
    recorded = table_operation(operation, metadata, metrics)
    content, _ = inline_content.compose(
        examination.examine(_content(recorded, protocol, metadata, *files)),
        txn_id=txn_id,
        timestamp_ms=committer.clock.now_ms(),
        version=Version(0),
        row_id_high_water=-1 if features.is_supported(protocol, "rowTracking") else None,
    )
    fail_point("registry.before_version_zero")
    if not store.put_if_absent(PublishedCommit(Version(0)).path, content):
        raise AlreadyExistsError(f"There is a table at {staging.location} already.")
    fail_point("registry.after_version_zero")
    # If this is refused, the files stay: the location and its content belong to the catalog.
    return committer.settle(txn_id, lambda: registry.register_table(name, staging.table_id))


def _content(operation: OperationInfo, *actions: Action) -> Inline:
    return Inline(
        commit_info=commit_info(operation, Isolation.SERIALIZABLE, None, is_blind=False),
        actions=join(encode(action) for action in actions),
    )

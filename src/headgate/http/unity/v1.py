"""`delta/v1`: load, commit, create, credentials, reports. Kebab-case.

There is no operation for commits alone: loading a table returns those that are not published,
newest first. Clients of this dialect read staged files only, so inline commits are published before
they are returned. One POST carries the commit, the claim of what is published and all changes of
metadata.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from headgate.api.messages import TableInfo
from headgate.api.status import CommitReports, FileSizes
from headgate.catalog.decider import Decided
from headgate.catalog.proposer import StagedProposal
from headgate.errors import HeadgateError, InvalidArgumentError
from headgate.http.async_answers import PendingAnswer
from headgate.http.budget import SMALL
from headgate.http.operations import Call, Finish, Operations, Pool
from headgate.http.unity import bodies, columns, external_tables, new_tables, problems, table_views
from headgate.http.unity.commits import (
    enqueue,
    is_replay,
    propose,
    refuse_wrong_claim,
    staged,
    valid_claim,
)
from headgate.http.unity.declarations import refuse_uniform
from headgate.http.unity.problems import BASE, Case, DialectError, exists_as, invalid
from headgate.names import TableName, plain_name
from headgate.protocol.actions import Metadata, Protocol, TableId, Version
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.table_states import TableKind

_VERSION: Final = "1.0"
_SCHEMA: Final = "/v1/catalogs/{catalog}/schemas/{schema}"
_TABLE: Final = f"{_SCHEMA}/tables/{{table}}"
_ACCESS: Final = ("READ", "READ_WRITE")
_MOST_BINS: Final = 1_000

# Also those that read: they may publish first.
operations = Operations(f"{BASE}/delta", "unity_", pool=Pool.CHANGES, encode_error=problems.kebab)

Found = TypeVar("Found")


# Reading


@operations.add("GET", _TABLE)
def load_table(call: Call) -> bodies.LoadedTable:
    """Load a table."""
    return _loaded(table_views.load(call.catalog, _name(call)))


@operations.add("HEAD", _TABLE)
def table_exists(call: Call) -> None:
    """Check whether a table exists."""
    table_views.find(call.catalog, _name(call))


@operations.add("GET", "/v1/config", pool=Pool.READS)
def config(call: Call) -> bodies.ConfigResponse:
    """Return the supported endpoints."""
    name, offered = call.text("catalog"), call.text("protocol-versions")
    if name is None or offered is None:
        raise invalid("Send `catalog` and `protocol-versions`.")
    table_views.require_catalog(call.catalog, plain_name(name))
    if _VERSION not in [text.strip() for text in offered.split(",")]:
        raise InvalidArgumentError(
            f"No version of {offered[:100]!r} is supported.", remedy=f"Use {_VERSION}."
        )
    return bodies.ConfigResponse(endpoints=_ENDPOINTS, protocol_version=_VERSION)


def _name(call: Call) -> TableName:
    return table_views.existing_name(call.path[part] for part in ("catalog", "schema", "table"))


def _loaded(
    described: TableInfo, still_ms: int = table_views.STILL_LISTED_MS
) -> bodies.LoadedTable:
    metadata = _metadata(described)
    if described.kind is TableKind.EXTERNAL:
        return bodies.LoadedTable(metadata=metadata)
    return bodies.LoadedTable(
        metadata=metadata,
        commits=tuple(
            bodies.Commit(**table_views.fields_of(commit))
            for commit in table_views.in_staged_files(described, still_ms)
        ),
        latest_table_version=described.latest,
    )


def _metadata(described: TableInfo) -> bodies.TableMetadata:
    if table_views.format_of(described) != "DELTA":
        raise DialectError(
            Case.OTHER_FORMAT,
            f"UnsupportedTableFormat: {described.name} is {table_views.format_of(described)}.",
            remedy="Use the older REST: GET /tables.",
        )
    metadata = described.metadata
    last = (described.metadata_version, described.changed_ms)
    version, timestamp_ms = (
        last if described.kind is TableKind.MANAGED else external_tables.last_commit(metadata)
    )
    return bodies.TableMetadata(
        etag=_etag(described.metadata_version),
        table_type=table_views.kind_of(described),
        table_uuid=described.table_id,
        location=described.location,
        created_time=described.created_ms,
        updated_time=max(described.changed_ms, described.created_ms),
        columns=columns.to_kebab(metadata.schema_string),
        partition_columns=metadata.partition_columns,
        properties=table_views.properties_of(described),
        last_commit_version=version,
        last_commit_timestamp_ms=timestamp_ms,
    )


def _etag(version: Version) -> str:
    return str(version)  # the version of the metadata, not of the table


# Committing


def _commit_soon(call: Call, pending: PendingAnswer) -> Finish | None:
    """Queue a commit to a table that is as it was described last."""
    body: bodies.TableUpdate = call.body
    add = _one(body.updates, bodies.AddCommit)
    try:
        before = call.catalog.kept_description(_name(call))
        if before is None or add is None or len(before.metadata.schema_string) > SMALL:
            return None
        asked = _asked(body, before)
        if not _holds(asked.etag, before.metadata_version):
            return None
        proposed = _proposed(asked, before, add)
        claim = valid_claim(before, asked.claim, add.commit)
        meaning = enqueue(call.catalog, proposed, claim, pending)
    except HeadgateError:
        return None  # the table may have changed since: it is looked at again
    if meaning is None:
        return None

    def finish(decided: Decided) -> bodies.LoadedTable | None:
        described = call.catalog.describe_next(before, *meaning(decided))
        # A repeated commit is described in the pool, where its answer may wait.
        return None if described is None else _after_commit(described)

    return finish


@operations.add(
    "POST",
    _TABLE,
    pool=Pool.PROPOSALS,
    encode_error=problems.kebab_on_commit,
    enqueue=_commit_soon,
    asks_again=True,
)
def update_table(call: Call, body: bodies.TableUpdate) -> bodies.LoadedTable:
    """Commit to a table."""
    add = _one(body.updates, bodies.AddCommit)
    describe: Callable[[TableName], TableInfo] = call.catalog.describe_briefly
    if add is not None:
        describe = partial(call.catalog.describe, since=Version(add.commit.version))
    before = table_views.find(call.catalog, _name(call), describe)
    asked = _asked(body, before)
    if before.kind is TableKind.EXTERNAL:
        return _declare(call, before, asked)
    if add is None:
        return _confirm(call, before, asked)
    proposed = _proposed(asked, before, add)
    claim = valid_claim(before, asked.claim, add.commit)
    is_asserted = _holds(asked.etag, before.metadata_version)
    if not is_asserted and not is_replay(call.catalog, proposed):
        _refuse_unless_asserted(before.table_id, before.metadata_version, asked.etag)
    after, commit = propose(call.catalog, proposed, claim)
    return _after(call, before, lambda: call.catalog.describe_after(before, after, commit))


class _Asked(NamedTuple):
    """What a client asks for, and asserts of the table's metadata."""

    updates: tuple[bodies.Update, ...]
    etag: bodies.AssertEtag | None
    claim: int | None  # up to which version it has published


def _asked(body: bodies.TableUpdate, before: TableInfo) -> _Asked:
    """Return what a client asks for; raise if it cannot be asked for, or not for this table."""
    if not body.requirements or not body.updates:
        raise invalid("Requirements and updates must not be empty.")
    updates = _one_of_each(body.updates)
    uuid = _one(_one_of_each(body.requirements), bodies.AssertTableUuid)
    if uuid is None:
        raise invalid("assert-table-uuid is missing.")
    if uuid.uuid.lower() != before.table_id:
        raise DialectError(
            Case.NOT_AS_ASSERTED,
            f"{before.name} is table {before.table_id}, not {uuid.uuid[:60]}.",
            remedy="Load it again.",
        )
    is_managed = before.kind is not TableKind.EXTERNAL
    if is_managed and _one(updates, bodies.SetSnapshotVersion) is not None:
        raise invalid(f"{before.name} is managed: its latest version is that of its commits.")
    published = _one(updates, bodies.SetPublished)
    claim = None if published is None else published.latest_published_version
    return _Asked(updates, _one(body.requirements, bodies.AssertEtag), claim)


def _proposed(asked: _Asked, before: TableInfo, add: bodies.AddCommit) -> StagedProposal:
    refuse_uniform(add.uniform)
    return staged(before, add.commit, asked.updates)


def _holds(etag: bodies.AssertEtag | None, version: Version) -> bool:
    return etag is None or etag.etag == _etag(version)


def _refuse_unless_asserted(
    table_id: TableId, version: Version, etag: bodies.AssertEtag | None
) -> None:
    if etag is not None and not _holds(etag, version):
        raise DialectError(
            Case.NOT_AS_ASSERTED,
            f"The metadata of table {table_id} changed: its etag is {_etag(version)}, "
            f"not {etag.etag[:60]}.",
            remedy="Load it again.",
        )


def _declare(call: Call, before: TableInfo, asked: _Asked) -> bodies.LoadedTable:
    """Store what is declared of an external table."""
    _metadata(before)  # raises unless its format is Delta
    # Raises for wrong updates, before any wait.
    external_tables.changed(before.metadata, asked.updates)

    def change(version: Version, metadata: Metadata) -> Metadata:
        changed = external_tables.changed(metadata, asked.updates)
        if changed != metadata:  # a repeated request changes nothing, and its etag may be old
            _refuse_unless_asserted(before.table_id, version, asked.etag)
        return changed

    call.catalog.change_external(before.table_id, change)
    return _loaded(call.catalog.describe(before.table_id))


def _one_of_each(given: tuple[Found, ...]) -> tuple[Found, ...]:
    if len({type(item) for item in given}) < len(given):
        raise invalid("There is more than one of the same type.")
    return given


def _one(given: Iterable[object], kind: type[Found]) -> Found | None:
    return next((item for item in given if isinstance(item, kind)), None)


def _confirm(call: Call, before: TableInfo, asked: _Asked) -> bodies.LoadedTable:
    claim = asked.claim
    others = [update for update in asked.updates if not isinstance(update, bodies.SetPublished)]
    if claim is None or others:
        raise InvalidArgumentError(
            f"The metadata of {before.name} can only be changed by a commit.",
            remedy="Send add-commit with it.",
        )
    _refuse_unless_asserted(before.table_id, before.metadata_version, asked.etag)
    refuse_wrong_claim(before, claim)
    version = Version(claim)
    call.catalog.confirm_published(before.table_id, version)
    return _after(call, before, lambda: call.catalog.describe_in_files(before.table_id, version))


def _after_commit(described: TableInfo) -> bodies.LoadedTable:
    # Who commits has read everything before it: published commits are of no use.
    return _loaded(described, still_ms=0)


def _after(call: Call, before: TableInfo, describe: Callable[[], TableInfo]) -> bodies.LoadedTable:
    """Return the table after a change, without an error if it cannot be described any more."""
    # If inline commits cannot be published, no commit is listed, rather than an incomplete list.
    try:
        return _after_commit(describe())
    except HeadgateError:
        pass
    try:
        return bodies.LoadedTable(metadata=_metadata(call.catalog.describe(before.table_id)))
    except HeadgateError:  # it may be dropped by now
        return bodies.LoadedTable(metadata=_metadata(before))


# Creating


@operations.add("POST", f"{_SCHEMA}/staging-tables")
def stage_table(call: Call, body: bodies.CreateStagingTableRequest) -> bodies.StagingTableResponse:
    """Create a staging table."""
    name = table_views.table_name(call.path["catalog"], call.path["schema"], body.name)
    staged = new_tables.stage(call.catalog, name)
    required = new_tables.required_protocol(call.settings)
    return bodies.StagingTableResponse(
        table_id=staged.table_id,
        table_type=table_views.MANAGED,
        location=staged.location,
        storage_credentials=_credentials(staged.location, "READ_WRITE").storage_credentials,
        required_protocol=bodies.DeltaProtocol(
            min_reader_version=required.min_reader_version,
            min_writer_version=required.min_writer_version,
            **_features(required),
        ),
        suggested_protocol=bodies.Features(
            **_features(new_tables.suggested_protocol(call.settings))
        ),
        required_properties=new_tables.required_properties(call.settings, staged.table_id),
        suggested_properties=new_tables.suggested_properties(call.settings),
    )


def _features(protocol: Protocol) -> dict[str, tuple[str, ...]]:
    return {
        "reader_features": tuple(protocol.reader_features or ()),
        "writer_features": tuple(protocol.writer_features or ()),
    }


@operations.add("GET", "/v1/staging-tables/{table_id}/credentials")
def staging_credentials(call: Call) -> bodies.Credentials:
    """Return credentials for a staging table."""
    table_id = table_views.parse_id(call.path["table_id"])
    return _credentials(call.catalog.location_of(table_id), "READ_WRITE")


@operations.add("POST", f"{_SCHEMA}/tables")
def create_table(call: Call, body: bodies.CreateTableRequest) -> bodies.LoadedTable:
    """Register a staging table."""
    name = table_views.table_name(call.path["catalog"], call.path["schema"], body.name)
    if body.table_type != table_views.MANAGED:
        raise InvalidArgumentError(
            f"A {body.table_type[:60]} table cannot be created here.",
            remedy="Create an external table with the older REST: POST /tables.",
        )
    refuse_uniform(body.uniform)
    if not columns.from_kebab(body.columns).fields:
        raise invalid("A table has at least one column.")
    declared = (
        bodies.SetColumns(columns=body.columns),
        bodies.SetPartitionColumns(partition_columns=body.partition_columns or ()),
        bodies.SetTableComment(comment=body.comment),
        bodies.SetProtocol(protocol=body.protocol),
        bodies.SetDomainMetadata(updates=body.domain_metadata or {}),
    )

    def judge(examined: Examined) -> Iterable[Violation]:
        if TABLE_ID_PROPERTY not in body.properties:
            says = f"{TABLE_ID_PROPERTY} is missing from the declared properties"
            yield Violation(rule="required-property", says=says)
        yield from new_tables.violations(call.settings, examined, body.properties, declared)

    return _loaded(new_tables.register(call.catalog, name, body.location, judge))


# Other operations


@operations.add("DELETE", _TABLE)
def delete_table(call: Call) -> None:
    """Drop a table."""
    found = table_views.find(call.catalog, _name(call), call.catalog.describe_briefly)
    call.catalog.drop_table(found.table_id)


@operations.add("POST", f"{_TABLE}/rename")
def rename_table(call: Call, body: bodies.TableRename) -> None:
    """Rename a table within its schema."""
    old, wanted = _name(call), plain_name(body.new_name)
    try:
        described = table_views.find(call.catalog, old, call.catalog.describe_briefly)
    except DialectError as error:
        renamed = TableName(old.catalog, old.schema, wanted)
        if error.case is Case.NO_TABLE and call.catalog.was_renamed(old, renamed):
            return  # a repeated request
        raise
    new = TableName(described.name.catalog, described.name.schema, wanted)
    with exists_as(Case.TABLE_THERE):
        call.catalog.rename_table(described.table_id, new)


@operations.add("GET", f"{_TABLE}/credentials")
def table_credentials(call: Call) -> bodies.Credentials:
    """Return credentials for a table."""
    access = call.text("operation")
    if access not in _ACCESS:
        raise InvalidArgumentError(f"The operation is {access!r}.", remedy="READ or READ_WRITE.")
    return _credentials(table_views.find(call.catalog, _name(call)).location, access)


def _credentials(location: str, operation: str) -> bodies.Credentials:
    credential = bodies.Credential(prefix=location, operation=operation)
    return bodies.Credentials(storage_credentials=(credential,))


@operations.add("POST", f"{_TABLE}/metrics")
def report_metrics(call: Call, body: bodies.CommitMetrics) -> None:
    """Record a writer's report of its commit."""
    described = table_views.find(call.catalog, _name(call), call.catalog.describe_briefly)
    if body.table_id.lower() != described.table_id:
        raise invalid(f"{described.name} is table {described.table_id}, not {body.table_id[:60]}.")
    report = body.report.commit_report
    if report is None:
        return
    sizes = report.file_size_histogram
    if not all(0 <= number < 1 << 53 for number in _numbers(report)):
        raise invalid("A report counts files, bytes and rows.")
    bins = (
        () if sizes is None else (sizes.sorted_bin_boundaries, sizes.file_counts, sizes.total_bytes)
    )
    if any(len(numbers) > _MOST_BINS for numbers in bins):
        raise invalid(f"A histogram has at most {_MOST_BINS} bins.")
    counts = msgspec.structs.asdict(report)
    del counts["file_size_histogram"]
    call.catalog.report_commit(
        described.table_id,
        CommitReports(
            commits=1,
            file_sizes=None if sizes is None else FileSizes(**msgspec.structs.asdict(sizes)),
            **{name.removeprefix("num_"): count or 0 for name, count in counts.items()},
        ),
    )


def _numbers(report: msgspec.Struct) -> Iterator[int]:
    for value in msgspec.structs.astuple(report):
        if isinstance(value, msgspec.Struct):
            yield from _numbers(value)
        elif value is not None:
            yield from value if isinstance(value, tuple) else (value,)


_ENDPOINTS: Final = tuple(
    f"{operation.method} {operation.path.removeprefix(f'{BASE}/delta')}"
    for operation in operations
    if operation.name != "unity_config"
)

"""`delta/v1`: load, commit, create, credentials, reports. Kebab-case.

There is no call for commits alone: loading a table gives those that are not published, newest
first. Clients of this dialect know staged files only, so what came inline is published before they
are answered. One POST carries the commit, the published claim and all metadata changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from headgate.api.messages import RatifiedCommit, TableInfo
from headgate.api.status import CommitReports, FileSizes
from headgate.errors import AlreadyExistsError, HeadgateError, InvalidArgumentError
from headgate.http.operations import Call, Operation, Pool
from headgate.http.unity import bodies, columns, external_tables, problems, table_views
from headgate.http.unity.commits import heard, is_replay, propose, refuse_wrong_claim
from headgate.http.unity.problems import BASE, Case, SaidError
from headgate.names import TableName, plain_name
from headgate.protocol.actions import Metadata, TableId, Version
from headgate.protocol.commit.examination import Examined, Violation
from headgate.protocol.properties import TABLE_ID_PROPERTY
from headgate.protocol.table_states import TableKind
from headgate.settings import Settings

_VERSION: Final = "1.0"
_V1: Final = f"{BASE}/delta/v1"
_SCHEMA: Final = "/v1/catalogs/{catalog}/schemas/{schema}"
_IN: Final = f"{BASE}/delta{_SCHEMA}"
_TABLE: Final = f"{_IN}/tables/{{table}}"
_ACCESS: Final = ("READ", "READ_WRITE")
_MOST_BINS: Final = 1_000
_ENDPOINTS: Final = (
    f"POST {_SCHEMA}/staging-tables",
    f"POST {_SCHEMA}/tables",
    f"GET {_SCHEMA}/tables/{{table}}",
    f"POST {_SCHEMA}/tables/{{table}}",
    f"DELETE {_SCHEMA}/tables/{{table}}",
    f"HEAD {_SCHEMA}/tables/{{table}}",
    f"POST {_SCHEMA}/tables/{{table}}/rename",
    f"GET {_SCHEMA}/tables/{{table}}/credentials",
    f"POST {_SCHEMA}/tables/{{table}}/metrics",
    "GET /v1/staging-tables/{table_id}/credentials",
)

Found = TypeVar("Found")


def operations(settings: Settings) -> list[Operation]:
    """List what this dialect can be asked."""

    def row(
        method: str,
        path: str,
        name: str,
        says: str,
        do: Callable[[Call], object],
        pool: Pool = Pool.CHANGES,
        **more: Any,
    ) -> Operation:
        how = {"refused": problems.kebab, **more}
        return Operation(method, path, f"unity_{name}", says, do, pool=pool, **how)

    return [
        row("GET", _TABLE, "load_table", "Load a table.", _load),
        row(
            "POST",
            _TABLE,
            "update_table",
            "Commit to a table.",
            _update,
            Pool.PROPOSALS,
            body=bodies.TableChange,
            refused=problems.kebab_on_commit,
        ),
        row("HEAD", _TABLE, "table_exists", "Say whether a table is there.", _exists),
        row("DELETE", _TABLE, "delete_table", "Drop a table.", _drop),
        row("GET", f"{_V1}/config", "config", "Say what is served.", _config, Pool.READS),
        row(
            "POST",
            f"{_IN}/staging-tables",
            "stage_table",
            "Give a place and an id.",
            lambda call: _stage(call, settings),
            body=bodies.NewStagingTable,
        ),
        row(
            "GET",
            f"{_V1}/staging-tables/{{table_id}}/credentials",
            "staging_credentials",
            "Open a staging table.",
            lambda call: _credentials(
                call.catalog.place_of(table_views.parse_id(call.path["table_id"])), "READ_WRITE"
            ),
        ),
        row(
            "POST",
            f"{_IN}/tables",
            "create_table",
            "Name a staging table.",
            lambda call: _create(call, settings),
            body=bodies.NewTable,
        ),
        row(
            "GET",
            f"{_TABLE}/credentials",
            "table_credentials",
            "Open a table.",
            _table_credentials,
        ),
        row(
            "POST",
            f"{_TABLE}/metrics",
            "report_metrics",
            "Keep what a writer reports of its commit.",
            _report,
            body=bodies.Metrics,
        ),
        row(
            "POST",
            f"{_TABLE}/rename",
            "rename_table",
            "Give a table another name.",
            _rename,
            body=bodies.NewName,
        ),
    ]


def _name(call: Call) -> TableName:
    return table_views.wanted_name(call.path[part] for part in ("catalog", "schema", "table"))


# Reading


def _config(call: Call) -> bodies.Config:
    name, offered = call.text("catalog"), call.text("protocol-versions")
    if name is None or offered is None:
        raise InvalidArgumentError("Say `catalog` and `protocol-versions`.", remedy="")
    table_views.require_catalog(call.catalog, plain_name(name))
    if _VERSION not in [text.strip() for text in offered.split(",")]:
        raise InvalidArgumentError(
            f"No version of {offered[:100]!r} is served.", remedy=f"Served are: {_VERSION}."
        )
    return bodies.Config(endpoints=_ENDPOINTS, protocol_version=_VERSION)


def _load(call: Call) -> bodies.LoadedTable:
    return _loaded(table_views.load(call.catalog, _name(call)))


def _exists(call: Call) -> None:
    table_views.find(call.catalog, _name(call))


def _loaded(described: TableInfo) -> bodies.LoadedTable:
    metadata = _metadata(described)
    if described.kind is TableKind.EXTERNAL:
        return bodies.LoadedTable(metadata=metadata)
    return bodies.LoadedTable(
        metadata=metadata,
        commits=tuple(map(_commit, table_views.in_staged_files(described))),
        latest_table_version=described.latest,
    )


def _commit(commit: RatifiedCommit) -> bodies.Commit:
    assert commit.file_name is not None  # it is staged
    return bodies.Commit(
        version=commit.version,
        timestamp=commit.timestamp_ms,
        file_name=commit.file_name,
        file_size=commit.size,
        file_modification_timestamp=commit.modified_ms or commit.timestamp_ms,
    )


def _metadata(described: TableInfo) -> bodies.TableMetadata:
    if table_views.format_of(described) != "DELTA":
        raise SaidError(
            Case.OTHER_FORMAT,
            f"UnsupportedTableFormat: {described.name} is {table_views.format_of(described)}.",
            remedy="Ask for it by the older REST: GET /tables.",
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
    return str(version)  # moves with metadata alone


# Committing


def _update(call: Call) -> bodies.LoadedTable:
    body: bodies.TableChange = call.body
    if not body.requirements or not body.updates:
        raise InvalidArgumentError("A change has requirements and updates.", remedy="")
    updates = _one_of_a_kind(body.updates)
    add = _one(updates, bodies.AddCommit)
    before = table_views.find(call.catalog, _name(call), _look_for(call, add))
    uuid = _one(_one_of_a_kind(body.requirements), bodies.AssertTableUuid)
    if uuid is None:
        raise InvalidArgumentError("assert-table-uuid is missing.", remedy="")
    if uuid.uuid.lower() != before.table_id:
        raise SaidError(
            Case.NOT_AS_ASSERTED,
            f"{before.name} is table {before.table_id}, not {uuid.uuid[:60]}.",
            remedy="Load it again.",
        )
    etag = _one(body.requirements, bodies.AssertEtag)
    if before.kind is TableKind.EXTERNAL:
        return _declare(call, before, updates, etag)
    if _one(updates, bodies.SetSnapshotVersion) is not None:
        raise InvalidArgumentError(
            f"{before.name} is managed: its commits tell how far it has come.", remedy=""
        )
    said = _one(updates, bodies.SetPublished)
    claim = None if said is None else said.latest_published_version
    if add is None:
        return _confirm(call, before, updates, claim, etag)
    table_views.refuse_uniform(add.uniform)
    claim = heard(before, claim, add.commit)
    is_stale = etag is not None and etag.etag != _etag(before.metadata_version)
    if is_stale and not is_replay(call.catalog, before, add.commit):
        _refuse_unless_asserted(before.table_id, before.metadata_version, etag)

    def judge(examined: Examined) -> Iterable[Violation]:
        return table_views.contradictions(updates, examined, before)

    after, commit = propose(call.catalog, before, add.commit, claim, judge)
    return _answered(call, before, lambda: call.catalog.describe_after(before, after, commit))


def _look_for(call: Call, add: bodies.AddCommit | None) -> Callable[[TableName], TableInfo]:
    if add is None:
        return call.catalog.describe_briefly
    version = Version(add.commit.version)
    return lambda name: call.catalog.describe(name, version)


def _refuse_unless_asserted(
    table_id: TableId, version: Version, etag: bodies.AssertEtag | None
) -> None:
    if etag is not None and etag.etag != _etag(version):
        raise SaidError(
            Case.NOT_AS_ASSERTED,
            f"The metadata of table {table_id} changed: its etag is {_etag(version)}, "
            f"not {etag.etag[:60]}.",
            remedy="Load it again.",
        )


def _declare(
    call: Call,
    before: TableInfo,
    updates: tuple[bodies.Update, ...],
    etag: bodies.AssertEtag | None,
) -> bodies.LoadedTable:
    """Keep what is said of a table whose log is its own."""
    _metadata(before)  # what is no Delta table is refused
    external_tables.changed(
        before.metadata, updates
    )  # what is wrong is refused before it is its turn

    def change(version: Version, metadata: Metadata) -> Metadata:
        changed = external_tables.changed(metadata, updates)
        if changed != metadata:  # told again it changes nothing, and its etag may be old
            _refuse_unless_asserted(before.table_id, version, etag)
        return changed

    call.catalog.change_external(before.table_id, change)
    return _loaded(call.catalog.describe(before.table_id))


def _one_of_a_kind(given: tuple[Found, ...]) -> tuple[Found, ...]:
    if len({type(item) for item in given}) < len(given):
        raise InvalidArgumentError("There is more than one of a kind.", remedy="")
    return given


def _one(given: Iterable[object], kind: type[Found]) -> Found | None:
    return next((item for item in given if isinstance(item, kind)), None)


def _confirm(
    call: Call,
    before: TableInfo,
    updates: Iterable[bodies.Update],
    claim: int | None,
    etag: bodies.AssertEtag | None,
) -> bodies.LoadedTable:
    others = [update for update in updates if not isinstance(update, bodies.SetPublished)]
    if claim is None or others:
        raise InvalidArgumentError(
            f"The metadata of {before.name} changes by a commit, and there is none.",
            remedy="Send add-commit with it.",
        )
    _refuse_unless_asserted(before.table_id, before.metadata_version, etag)
    refuse_wrong_claim(before, claim)
    call.catalog.confirm_published(before.table_id, Version(claim))
    version = Version(claim)
    return _answered(call, before, lambda: call.catalog.describe_in_files(before.table_id, version))


def _answered(call: Call, before: TableInfo, look: Callable[[], TableInfo]) -> bodies.LoadedTable:
    """Tell of the table after what was done; if that cannot be, it was done nevertheless.

    Of commits that are published only from a version on: it is nobody's second look. Where what
    came inline cannot be published, no commit is told of: never a shorter history.
    """
    try:
        return _loaded(look())
    except HeadgateError:
        pass
    try:
        return bodies.LoadedTable(metadata=_metadata(call.catalog.describe(before.table_id)))
    except HeadgateError:  # it may be dropped by now
        return bodies.LoadedTable(metadata=_metadata(before))


# Making


def _stage(call: Call, settings: Settings) -> bodies.StagingTable:
    name = table_views.table_name(call.path["catalog"], call.path["schema"], call.body.name)
    staged = table_views.stage(call.catalog, name)
    required = table_views.required_protocol(settings)
    suggested = table_views.suggested_protocol(settings)
    return bodies.StagingTable(
        table_id=staged.table_id,
        table_type=table_views.MANAGED,
        location=staged.location,
        storage_credentials=(_credential(staged.location, "READ_WRITE"),),
        required_protocol=bodies.RequiredProtocol(
            min_reader_version=required.min_reader_version,
            min_writer_version=required.min_writer_version,
            reader_features=tuple(required.reader_features or ()),
            writer_features=tuple(required.writer_features or ()),
        ),
        suggested_protocol=bodies.SuggestedProtocol(
            reader_features=tuple(suggested.reader_features or ()),
            writer_features=tuple(suggested.writer_features or ()),
        ),
        required_properties=table_views.required_properties(settings, staged.table_id),
        suggested_properties=table_views.suggested_properties(settings),
    )


def _create(call: Call, settings: Settings) -> bodies.LoadedTable:
    body: bodies.NewTable = call.body
    name = table_views.table_name(call.path["catalog"], call.path["schema"], body.name)
    if body.table_type != table_views.MANAGED:
        raise InvalidArgumentError(
            f"A {body.table_type[:60]} table is not made here.",
            remedy="Name an external one by the older REST: POST /tables.",
        )
    table_views.refuse_uniform(body.uniform)
    wanted = columns.from_kebab(body.columns)
    if not wanted.fields:
        raise InvalidArgumentError("A table has at least one column.", remedy="")

    def judge(examined: Examined) -> Iterable[Violation]:
        if TABLE_ID_PROPERTY not in body.properties:
            says = f"{TABLE_ID_PROPERTY} is missing from the declared properties"
            yield Violation(rule="required-property", says=says)
        yield from table_views.lacks_required(settings, examined, body.properties)
        if examined.metadata is None:
            return
        yield from table_views.asks_for_uniform(examined)
        yield from table_views.columns_differ(examined.metadata, wanted)
        yield from table_views.partitioning_differs(examined.metadata, body.partition_columns or ())
        yield from table_views.declared_properties_differ(examined.metadata, body.properties)
        yield from table_views.comment_differs(examined.metadata, body.comment)
        yield from table_views.protocol_differs(examined.protocol, body.protocol)
        yield from table_views.domains_differ(examined, (), body.domain_metadata or {})

    return _loaded(table_views.register(call.catalog, name, body.location, judge))


# The rest


def _drop(call: Call) -> None:
    found = table_views.find(call.catalog, _name(call), call.catalog.describe_briefly)
    call.catalog.drop_table(found.table_id)


def _rename(call: Call) -> None:
    old, wanted = _name(call), plain_name(call.body.new_name)
    try:
        described = table_views.find(call.catalog, old, call.catalog.describe_briefly)
    except SaidError as error:
        renamed = TableName(old.catalog, old.schema, wanted)
        if error.case is Case.NO_TABLE and call.catalog.was_renamed(old, renamed):
            return  # told again: the first time the old name went
        raise
    new = TableName(described.name.catalog, described.name.schema, wanted)
    try:
        call.catalog.rename_table(described.table_id, new)
    except AlreadyExistsError as error:
        raise SaidError(Case.TABLE_THERE, error.message) from None


def _table_credentials(call: Call) -> bodies.Credentials:
    wanted = call.text("operation")
    if wanted not in _ACCESS:
        raise InvalidArgumentError(f"The operation is {wanted!r}.", remedy="READ or READ_WRITE.")
    location = table_views.find(call.catalog, _name(call)).location
    return _credentials(location, wanted)


def _credentials(location: str, operation: str) -> bodies.Credentials:
    return bodies.Credentials(storage_credentials=(_credential(location, operation),))


def _credential(location: str, operation: str) -> bodies.Credential:
    return bodies.Credential(prefix=location, operation=operation)


def _report(call: Call) -> None:
    body: bodies.Metrics = call.body
    described = table_views.find(call.catalog, _name(call), call.catalog.describe_briefly)
    if body.table_id.lower() != described.table_id:
        raise InvalidArgumentError(
            f"{described.name} is table {described.table_id}, not {body.table_id[:60]}.", remedy=""
        )
    report = body.report.commit_report
    if report is None:
        return
    sizes = report.file_size_histogram
    if not all(0 <= number < 1 << 53 for number in _numbers(report)):
        raise InvalidArgumentError("A report counts files, bytes and rows.", remedy="")
    if sizes is not None and _bins(sizes) > _MOST_BINS:
        raise InvalidArgumentError(f"A histogram has at most {_MOST_BINS} bins.", remedy="")
    call.catalog.report_commit(
        described.table_id,
        CommitReports(
            commits=1,
            files_added=report.num_files_added,
            bytes_added=report.num_bytes_added,
            files_removed=report.num_files_removed,
            bytes_removed=report.num_bytes_removed,
            rows_inserted=report.num_rows_inserted or 0,
            rows_removed=report.num_rows_removed or 0,
            rows_updated=report.num_rows_updated or 0,
            file_sizes=None if sizes is None else FileSizes(**msgspec.structs.asdict(sizes)),
        ),
    )


def _bins(sizes: bodies.FileSizeHistogram) -> int:
    return max(map(len, (sizes.sorted_bin_boundaries, sizes.file_counts, sizes.total_bytes)))


def _numbers(report: msgspec.Struct) -> Iterator[int]:
    for value in msgspec.structs.astuple(report):
        if isinstance(value, msgspec.Struct):
            yield from _numbers(value)
        elif value is not None:
            yield from value if isinstance(value, tuple) else (value,)

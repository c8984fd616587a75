"""What an operator reads from a catalog: its status, listeners, tokens and locations."""

from msgspec import field

from headgate.api.messages import Message
from headgate.protocol.actions import Sequence, TableId


class ListenerEntry(Message, frozen=True, kw_only=True):
    """A registered listener and its progress."""

    name: str
    kind: str  # webhook, or callable: in the process that registered it
    target: str  # a webhook's URL, or a callable's name
    position: Sequence  # all events up to this sequence are delivered
    behind: int = 0  # how many sequences are not delivered yet
    created_ms: int
    failing: str | None = None  # why the last delivery failed


class TokenEntry(Message, frozen=True, kw_only=True):
    """A token, without its secret."""

    name: str
    created_ms: int
    expires_ms: int | None = None
    revoked_ms: int | None = None


class LocationEntry(Message, frozen=True, kw_only=True):
    """A registered location outside of the lake's root, under which clients may have tables."""

    url: str
    created_ms: int


class FileSizes(Message, frozen=True, kw_only=True):
    """A histogram of the sizes of a table's files, as reported by a writer."""

    sorted_bin_boundaries: tuple[int, ...] = ()
    file_counts: tuple[int, ...] = ()
    total_bytes: tuple[int, ...] = ()
    commit_version: int | None = None


class CommitReports(Message, frozen=True, kw_only=True):
    """The sum of what writers reported of their commits to a table. It is not verified."""

    commits: int = 0
    files_added: int = 0
    bytes_added: int = 0
    files_removed: int = 0
    bytes_removed: int = 0
    rows_inserted: int = 0
    rows_removed: int = 0
    rows_updated: int = 0
    file_sizes: FileSizes | None = None  # of the newest version in a report
    last_ms: int | None = None  # time of the last report


class NamespaceDetails(Message, frozen=True, kw_only=True):
    """Details of a catalog or a schema beyond its name."""

    comment: str | None = None
    properties: dict[str, str] = field(default_factory=dict)
    changed_ms: int | None = None
    id: str | None = None  # stays when it is renamed
    former_name: str | None = None  # before the last rename
    storage_root: str | None = None  # new tables are stored under it
    storage_location: str | None = None  # its own folder under the storage root


class CatalogDetails(Message, frozen=True, kw_only=True):
    """Details of a catalog, and of its schemas by their folded names."""

    catalog: NamespaceDetails = NamespaceDetails()
    schemas: dict[str, NamespaceDetails] = field(default_factory=dict)


class Tail(Message, frozen=True, kw_only=True):
    """How many commits of a table are ratified and not yet published."""

    table_id: TableId
    name: str | None = None
    unpublished: int


class Trouble(Message, frozen=True, kw_only=True):
    """A table that is not published, and why; if it is stopped, it needs a repair."""

    table_id: TableId
    name: str | None = None
    reason: str
    is_stopped: bool = False


class Status(Message, frozen=True, kw_only=True):
    """The status of a catalog at one instant."""

    version: str  # of Headgate
    store: str  # the kind of database, and its schema version
    root: str  # location of the lake
    sequence: Sequence
    clock_ms: int
    tables: dict[str, int]  # count by state
    external: int = 0  # count of external tables among the active ones
    unpublished: int = 0  # count of unpublished commits
    tails: tuple[Tail, ...] = ()  # the longest first
    open_transactions: int = 0  # begun with the catalog, and not decided
    publisher_lag_ms: int = 0  # age of the oldest unpublished commit
    troubles: tuple[Trouble, ...] = ()
    listeners: tuple[ListenerEntry, ...] = ()
    tokens: int = 0  # count of tokens that are not revoked

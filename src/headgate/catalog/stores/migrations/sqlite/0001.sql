-- The first schema of the catalog. Constraints prevent two winners: (table, version), (txnId,
-- table), a current name and a location are each unique.

CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE clock (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    sequence INTEGER NOT NULL,
    clock_ms INTEGER NOT NULL
) STRICT;
INSERT INTO clock VALUES (1, 0, 0);

CREATE TABLE sequences (
    sequence INTEGER PRIMARY KEY,
    clock_ms INTEGER NOT NULL,
    txn_id TEXT
) STRICT;
CREATE INDEX sequences_by_time ON sequences (clock_ms, sequence);

CREATE TABLE namespaces (
    catalog_key TEXT NOT NULL,
    schema_key TEXT NOT NULL,
    catalog TEXT NOT NULL,
    schema TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    PRIMARY KEY (catalog_key, schema_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE tables (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    location TEXT NOT NULL,
    head INTEGER NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    published INTEGER NOT NULL CHECK (published <= head),
    held_from INTEGER NOT NULL,
    protocol BLOB NOT NULL,
    metadata BLOB NOT NULL,
    metadata_version INTEGER NOT NULL,
    domains BLOB NOT NULL,
    row_id_high_water INTEGER,
    num_files INTEGER,
    size_bytes INTEGER,
    diverged TEXT,
    ticket TEXT,
    ticket_until_ms INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    dropped_ms INTEGER,
    purged_ms INTEGER
) STRICT;
CREATE UNIQUE INDEX tables_places ON tables (location)
    WHERE purged_ms IS NULL;
CREATE INDEX tables_unpublished ON tables (key) WHERE published < head AND state = 'active';

CREATE TABLE names (
    catalog_key TEXT NOT NULL,
    schema_key TEXT NOT NULL,
    name_key TEXT NOT NULL,
    catalog TEXT NOT NULL,
    schema TEXT NOT NULL,
    name TEXT NOT NULL,
    table_id TEXT NOT NULL REFERENCES tables (id),
    from_sequence INTEGER NOT NULL,
    to_sequence INTEGER
) STRICT;
CREATE UNIQUE INDEX names_current ON names (catalog_key, schema_key, name_key)
    WHERE to_sequence IS NULL;
CREATE UNIQUE INDEX names_current_of ON names (table_id) WHERE to_sequence IS NULL;
CREATE INDEX names_past ON names (catalog_key, schema_key, name_key, from_sequence);
CREATE INDEX names_of ON names (table_id, from_sequence);

CREATE TABLE commits (
    table_key INTEGER NOT NULL REFERENCES tables (key),
    version INTEGER NOT NULL CHECK (version >= 0),
    sequence INTEGER NOT NULL,
    timestamp_ms INTEGER NOT NULL,
    txn_id TEXT NOT NULL,
    way TEXT NOT NULL,
    file_name TEXT,
    size INTEGER NOT NULL,
    sha256 BLOB NOT NULL,
    modified_ms INTEGER,
    intent BLOB NOT NULL,
    proposed_ms INTEGER NOT NULL,
    ratified_ms INTEGER NOT NULL,
    published_ms INTEGER,
    summary BLOB,
    content BLOB,
    UNIQUE (table_key, version),
    UNIQUE (txn_id, table_key)
) STRICT;

CREATE TABLE rejections (
    txn_id TEXT PRIMARY KEY,
    intent BLOB NOT NULL,
    answer BLOB NOT NULL,
    decided_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX rejections_by_age ON rejections (decided_ms);

CREATE TABLE files (
    table_key INTEGER NOT NULL REFERENCES tables (key),
    kind TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    paths TEXT NOT NULL,
    PRIMARY KEY (table_key, kind, last, first)
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
    name TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

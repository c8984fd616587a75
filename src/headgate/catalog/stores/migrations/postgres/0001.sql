-- The first schema of the catalog. Constraints prevent two winners: (table, version), (txnId,
-- table), a current name and a location are each unique. Text is compared by bytes, whatever the
-- database's collation is. Rows that change with every batch have free space on their page and no
-- index over the changed columns, such as a table's head, so that updates write no index.

CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version VALUES (0);

CREATE TABLE settings (key TEXT COLLATE "C" PRIMARY KEY, value TEXT COLLATE "C" NOT NULL);

CREATE TABLE clock (
    id BIGINT PRIMARY KEY CHECK (id = 1),
    sequence BIGINT NOT NULL,
    clock_ms BIGINT NOT NULL
) WITH (fillfactor = 10);
INSERT INTO clock VALUES (1, 0, 0);

CREATE TABLE sequences (
    sequence BIGINT PRIMARY KEY,
    clock_ms BIGINT NOT NULL,
    txn_id TEXT COLLATE "C"
);
CREATE INDEX sequences_by_time ON sequences (clock_ms, sequence);

CREATE TABLE namespaces (
    catalog_key TEXT COLLATE "C" NOT NULL,
    schema_key TEXT COLLATE "C" NOT NULL,
    catalog TEXT COLLATE "C" NOT NULL,
    schema TEXT COLLATE "C" NOT NULL,
    created_ms BIGINT NOT NULL,
    PRIMARY KEY (catalog_key, schema_key)
);

CREATE TABLE tables (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id TEXT COLLATE "C" NOT NULL UNIQUE,
    state TEXT COLLATE "C" NOT NULL,
    location TEXT COLLATE "C" NOT NULL,
    head BIGINT NOT NULL,
    timestamp_ms BIGINT NOT NULL,
    published BIGINT NOT NULL,
    held_from BIGINT NOT NULL,
    protocol BYTEA NOT NULL,
    metadata BYTEA NOT NULL,
    metadata_version BIGINT NOT NULL,
    domains BYTEA NOT NULL,
    row_id_high_water BIGINT,
    num_files BIGINT,
    size_bytes BIGINT,
    diverged TEXT COLLATE "C",
    ticket TEXT COLLATE "C",
    ticket_until_ms BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    dropped_ms BIGINT,
    purged_ms BIGINT,
    kind TEXT COLLATE "C" NOT NULL,
    CHECK (published <= head)
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX tables_places ON tables (location) WHERE purged_ms IS NULL;

CREATE TABLE names (
    catalog_key TEXT COLLATE "C" NOT NULL,
    schema_key TEXT COLLATE "C" NOT NULL,
    name_key TEXT COLLATE "C" NOT NULL,
    catalog TEXT COLLATE "C" NOT NULL,
    schema TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    table_id TEXT COLLATE "C" NOT NULL REFERENCES tables (id),
    from_sequence BIGINT NOT NULL,
    to_sequence BIGINT
);
CREATE UNIQUE INDEX names_current ON names (catalog_key, schema_key, name_key)
    WHERE to_sequence IS NULL;
CREATE UNIQUE INDEX names_current_of ON names (table_id) WHERE to_sequence IS NULL;
CREATE INDEX names_past ON names (catalog_key, schema_key, name_key, from_sequence);
CREATE INDEX names_of ON names (table_id, from_sequence);
CREATE INDEX names_begun ON names (from_sequence);
CREATE INDEX names_ended ON names (to_sequence) WHERE to_sequence IS NOT NULL;

CREATE TABLE commits (
    table_key BIGINT NOT NULL REFERENCES tables (key),
    version BIGINT NOT NULL CHECK (version >= 0),
    sequence BIGINT NOT NULL,
    timestamp_ms BIGINT NOT NULL,
    txn_id TEXT COLLATE "C" NOT NULL,
    way TEXT COLLATE "C" NOT NULL,
    file_name TEXT COLLATE "C",
    size BIGINT NOT NULL,
    sha256 BYTEA NOT NULL,
    modified_ms BIGINT,
    intent BYTEA NOT NULL,
    proposed_ms BIGINT NOT NULL,
    ratified_ms BIGINT NOT NULL,
    published_ms BIGINT,
    summary BYTEA,
    content BYTEA,
    UNIQUE (table_key, version),
    UNIQUE (txn_id, table_key)
);

CREATE TABLE rejections (
    txn_id TEXT COLLATE "C" PRIMARY KEY,
    intent BYTEA NOT NULL,
    answer BYTEA NOT NULL,
    decided_ms BIGINT NOT NULL
);
CREATE INDEX rejections_by_age ON rejections (decided_ms);

CREATE TABLE files (
    table_key BIGINT NOT NULL REFERENCES tables (key),
    kind TEXT COLLATE "C" NOT NULL,
    first BIGINT NOT NULL,
    last BIGINT NOT NULL,
    paths TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (table_key, kind, last, first)
);

CREATE TABLE leases (
    name TEXT COLLATE "C" PRIMARY KEY,
    holder TEXT COLLATE "C" NOT NULL,
    until_ms BIGINT NOT NULL
);

CREATE TABLE tokens (
    name TEXT COLLATE "C" PRIMARY KEY,
    secret_sha256 BYTEA NOT NULL UNIQUE,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT,
    revoked_ms BIGINT
);

CREATE TABLE answers (
    key TEXT COLLATE "C" PRIMARY KEY,
    request BYTEA NOT NULL,
    answer BYTEA NOT NULL,
    decided_ms BIGINT NOT NULL
);
CREATE INDEX answers_by_age ON answers (decided_ms);

CREATE TABLE listeners (
    name TEXT COLLATE "C" PRIMARY KEY,
    kind TEXT COLLATE "C" NOT NULL,
    target TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    failing TEXT COLLATE "C"
);

-- Rows of a server: access tokens, answers by idempotency key, and listeners. Also external tables,
-- and indexes from a sequence to the names it assigned and released.

ALTER TABLE tables ADD COLUMN kind TEXT NOT NULL DEFAULT 'managed';
CREATE INDEX tables_external ON tables (state) WHERE kind = 'external';

CREATE INDEX names_begun ON names (from_sequence);
CREATE INDEX names_ended ON names (to_sequence) WHERE to_sequence IS NOT NULL;

CREATE TABLE tokens (
    name TEXT PRIMARY KEY,
    secret_sha256 BLOB NOT NULL UNIQUE,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE answers (
    key TEXT PRIMARY KEY,
    request BLOB NOT NULL,
    answer BLOB NOT NULL,
    decided_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX answers_by_age ON answers (decided_ms);

CREATE TABLE listeners (
    name TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    position INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    failing TEXT
) STRICT, WITHOUT ROWID;

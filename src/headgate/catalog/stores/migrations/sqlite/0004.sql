-- Locations outside of the lake's root where clients of a server may create tables.

CREATE TABLE locations (
    url TEXT PRIMARY KEY,
    created_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Locations outside of the lake's root where clients of a server may create tables.

CREATE TABLE locations (
    url TEXT COLLATE "C" PRIMARY KEY,
    created_ms BIGINT NOT NULL
);

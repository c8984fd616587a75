-- With the last sequence the epoch, which a batch of decisions is compared with when it is written.
-- It counts changes that take no sequence, so most commits do not write this page.

CREATE TABLE epoch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    changes INTEGER NOT NULL
) STRICT;
INSERT INTO epoch VALUES (1, 0);

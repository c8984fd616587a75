-- Every commit writes fewer pages: the clock is the last sequence, times rise with sequences, and
-- the list of unpublished tables changes only with the first commit to publish and the last one
-- published. An index over heads was rewritten by every commit.

DROP TABLE clock;
DROP INDEX sequences_by_time;
DROP INDEX tables_unpublished;

CREATE TABLE behind (table_key INTEGER PRIMARY KEY) STRICT;
INSERT INTO behind SELECT key FROM tables WHERE published < head;

CREATE TRIGGER behind_from_the_first AFTER INSERT ON tables
    WHEN NEW.published < NEW.head
BEGIN
    INSERT INTO behind VALUES (NEW.key);
END;

CREATE TRIGGER behind_from_now_on AFTER UPDATE OF head, published ON tables
    WHEN OLD.published = OLD.head AND NEW.published < NEW.head
BEGIN
    INSERT INTO behind VALUES (NEW.key);
END;

CREATE TRIGGER behind_no_more AFTER UPDATE OF head, published ON tables
    WHEN OLD.published < OLD.head AND NEW.published = NEW.head
BEGIN
    DELETE FROM behind WHERE table_key = NEW.key;
END;

-- With the sequence the epoch, which a batch of decisions is compared with when it is written. It
-- counts changes that take no sequence.

ALTER TABLE clock ADD COLUMN changes BIGINT NOT NULL DEFAULT 0;

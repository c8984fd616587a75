"""A table's log on storage: files, checkpoints, snapshots, plans."""

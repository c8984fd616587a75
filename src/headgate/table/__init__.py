"""A table's log on storage: commits, checkpoints, snapshots."""

"""`fsck`: compare the catalog with its tables' logs and data, and repair what can be repaired.

`inspector` runs everything over one table or all. Each other module has one concern:

- `table_check`: compare the catalog's rows of a table with its log.
- `log_folder`: list a log's folder; report files that do not belong there.
- `derived_files`: check and set aside checkpoints, compactions and checksums.
- `data_files`: find missing data files and wrong file counts.
- `leftovers`: find files and folders that belong to no table.
- `log_repair`: restore the ratified bytes of commits that were lost or altered.
- `adoption`: ratify commits that are in a log but missing from the catalog.
- `filesystem_check`: check the logs and folders of a catalog that has no database.

Checking changes nothing, and a repair deletes no commit: it renames what is wrong.
"""

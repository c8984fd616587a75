"""The table as Iceberg sees it, and the pointer."""

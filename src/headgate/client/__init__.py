"""The Delta client: sessions, tables, reads and writes."""

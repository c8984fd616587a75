"""Where the catalog keeps what it knows; the only SQL."""

"""Parse, validate, compare and decide commits."""

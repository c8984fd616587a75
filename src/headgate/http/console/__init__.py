"""Read-only pages over the native API."""

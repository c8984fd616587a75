"""Delta schemas: their types, their text, and how they change."""

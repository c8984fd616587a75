"""Expressions over columns, and which files can hold matching rows."""

"""Numbered SQL, a folder per store."""

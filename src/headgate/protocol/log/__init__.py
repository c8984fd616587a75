"""The log of a table: which files to read, and what they add up to."""

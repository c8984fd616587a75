"""Headgate: the catalog every commit of a Delta table passes through."""

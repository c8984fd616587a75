"""Scenarios: one file for each, one function for each side, all with the same signature."""

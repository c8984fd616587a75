"""Headgate's tests."""

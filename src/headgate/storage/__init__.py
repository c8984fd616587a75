"""Bytes under names: local disk, object stores, memory."""

"""Histories of transactions: recorded, and checked by what isolation levels promise."""

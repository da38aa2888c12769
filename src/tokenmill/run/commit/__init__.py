"""Receipts, limits, and how finished units become a dataset."""

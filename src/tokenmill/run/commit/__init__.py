"""Receipts and limits, and the step from finished units to a dataset."""

"""Exports compared with their dataset."""

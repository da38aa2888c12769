"""Rows of a plan as files."""

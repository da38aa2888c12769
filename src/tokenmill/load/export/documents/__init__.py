"""Whole documents as files."""

"""Rendering of records as texts, if no single field is the text."""

"""Builds and counts, which can be stopped and resumed at any time."""

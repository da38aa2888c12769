"""Compiled loops: how they are compiled, kept, and run as Python until they are."""

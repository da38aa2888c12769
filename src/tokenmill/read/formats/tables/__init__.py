"""Parquet and Arrow files, parsed in a process that a damaged file may crash."""

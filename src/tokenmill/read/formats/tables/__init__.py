"""Parquet and Arrow files, parsed in a separate process because damaged files can crash Arrow."""

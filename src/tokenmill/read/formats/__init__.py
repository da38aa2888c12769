"""File formats: JSON Lines, JSON, CSV, TSV, plain text, WET, Parquet and Arrow."""

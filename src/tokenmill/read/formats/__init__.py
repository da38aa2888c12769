"""How documents are written in a file: JSON Lines, plain text, Parquet and Arrow."""

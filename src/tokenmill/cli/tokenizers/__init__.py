"""`tokenmill tokenizer`: one file per action."""

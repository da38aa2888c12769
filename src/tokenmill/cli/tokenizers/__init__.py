"""tokenmill tokenizer: one file for one or several actions."""

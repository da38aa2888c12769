"""`tokenizer train`: options and word counts become the files of a tokenizer."""

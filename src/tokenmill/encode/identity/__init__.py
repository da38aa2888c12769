"""What makes a tokenizer the one that it is."""

"""`tokenizer extend` and `trim`: add tokens to a BPE tokenizer, or remove some."""

"""`tokenizer extend` and `trim`: a BPE gains or loses tokens; its other ids stay known."""

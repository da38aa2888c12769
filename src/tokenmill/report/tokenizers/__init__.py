"""Tokenizers looked at: what one is, how two differ, how fast each way to encode is."""

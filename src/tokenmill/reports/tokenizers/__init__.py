"""Describe, compare and time tokenizers."""

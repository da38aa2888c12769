"""Recommend a vocabulary size, from scaling laws and word counts."""

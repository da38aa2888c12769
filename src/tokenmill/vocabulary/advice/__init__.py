"""Advice on the size of a vocabulary, from scaling laws and from a corpus' own counts."""

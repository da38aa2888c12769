"""Subword regularisation: one text, many encodings, each drawn by a key of its own."""

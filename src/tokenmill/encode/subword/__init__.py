"""Subword regularisation: sample one of many encodings of a text, determined by a key."""

"""The reference behind a memory of what it has said: one answer for each chunk of text."""

"""Texts cut where that changes no id, and a table of chunks with the ids of each."""

"""Adopting token files of other tools: they become a dataset without being encoded again."""

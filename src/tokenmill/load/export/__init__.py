"""Materialised rows for trainers that want files of them."""

"""The cores and memory of this machine."""

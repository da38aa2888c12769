"""Sequences of a plan in, training rows out: ids, labels and flags, read from mapped shards."""

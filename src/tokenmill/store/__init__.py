"""Token batches to shards on disk, and back: the only package that knows the bytes of a dataset."""

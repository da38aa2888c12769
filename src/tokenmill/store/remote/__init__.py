"""Reading a dataset in a bucket through a local cache folder."""

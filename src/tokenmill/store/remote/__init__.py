"""A dataset in a bucket, read through a cache folder on this machine."""

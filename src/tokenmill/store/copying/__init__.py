"""A dataset, copied to another place."""

"""What a worker does: one unit from its sources to a finished shard."""

"""Run one unit in a worker, from its sources to a finished shard."""

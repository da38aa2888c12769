"""Several agents, one on each machine, that share the work of a build without a coordinator."""

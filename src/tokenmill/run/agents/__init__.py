"""Several agents, one a machine, that share the items of a build without a coordinator."""

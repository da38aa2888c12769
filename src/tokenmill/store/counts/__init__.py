"""Word counts on disk: sorted runs, one per unit of work, and the folder that merges them."""

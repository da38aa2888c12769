"""Word counts on disk: sorted runs of single units, and the folder that they are merged into."""

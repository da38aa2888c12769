"""What packing saves, counted and measured: `tokenmill bench packing`."""

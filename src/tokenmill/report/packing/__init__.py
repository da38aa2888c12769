"""Count and measure what packing saves: `tokenmill bench packing`."""

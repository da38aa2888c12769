"""Sources to document batches: what is read, how it is cut into units, and what is set aside."""

"""Cut texts into chunks that can be encoded independently, and cache the ids of each chunk."""

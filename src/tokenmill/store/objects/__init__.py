"""Where a build keeps what it knows: a folder, or a prefix of a bucket."""

"""Plans and shards in, training rows out."""

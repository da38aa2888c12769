"""Object stores that a build writes to: a folder, or a prefix of a bucket."""

"""Objects in buckets and on web servers, read where they are."""

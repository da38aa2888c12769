"""Objects in S3, Google Cloud Storage, Azure and on web servers: clients, credentials, errors."""

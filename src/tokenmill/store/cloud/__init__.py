"""Access to S3, Google Cloud Storage, Azure and web servers: clients, credentials, errors."""

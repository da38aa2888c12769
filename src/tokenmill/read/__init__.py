"""Reading sources as batches of documents: formats, units of work, rejected records."""

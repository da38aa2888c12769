"""Training rows from text that is encoded again in each epoch, with a sampled encoding."""

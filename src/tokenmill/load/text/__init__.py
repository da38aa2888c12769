"""Text in, training rows out: for sources whose encoding is sampled anew in each epoch."""

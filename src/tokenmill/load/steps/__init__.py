"""The sequences of each training step, their order, and the rows of each rank."""

"""What each step trains on: which sequences, in which order, and which rank has which rows."""

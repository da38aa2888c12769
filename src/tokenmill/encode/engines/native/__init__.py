"""native: compiled code of our own for models that no fast library encodes exactly, or fast."""

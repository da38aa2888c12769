"""native: tokenmill's compiled engine, for models that no fast library encodes exactly."""

"""Packing: from document lengths to sequences, as pure functions on arrays."""

"""Rendering of conversations: a chat template writes the text, and turns determine the loss."""

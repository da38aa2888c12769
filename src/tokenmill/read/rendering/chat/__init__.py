"""Conversations become documents: a chat template makes the text, and turns decide the loss."""

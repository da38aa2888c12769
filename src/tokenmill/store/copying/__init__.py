"""Copying datasets between folders and object stores."""

"""Exports on the Hugging Face Hub."""

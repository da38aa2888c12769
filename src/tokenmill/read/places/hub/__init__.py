"""Datasets on the Hugging Face Hub: resolving names, and downloading or streaming files."""

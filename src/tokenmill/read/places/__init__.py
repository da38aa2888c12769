"""Locations of inputs: this machine, the Hugging Face Hub, object stores and web servers."""

"""Data sets on the Hugging Face Hub: what a name stands for, its files, kept or read from afar."""

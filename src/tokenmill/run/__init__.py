"""The main path, and what it needs to be stopped and resumed anywhere."""

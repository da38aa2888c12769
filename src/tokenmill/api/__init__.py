"""The commands of the command line as Python functions; `tokenmill` exports them."""

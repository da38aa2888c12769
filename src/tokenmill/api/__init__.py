"""The command line's verbs as functions; `tokenmill` itself names them."""

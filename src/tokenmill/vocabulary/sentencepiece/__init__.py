"""SentencePiece models, trained by its own library from counts of words."""

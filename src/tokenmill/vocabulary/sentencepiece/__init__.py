"""Train SentencePiece models with its library, from word counts."""

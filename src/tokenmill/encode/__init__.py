"""Document batches to token batches: tokenizer files, engines, and what keeps ids exact."""

"""Document batches to token batches: tokenizer files, engines, and the checks that keep ids exact."""

"""What a tokenizer makes of texts, in sums that can be added up in any order."""

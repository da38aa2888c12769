"""Which sequence length suits a corpus: its document lengths, and what each length costs."""

"""Words: what a pre-tokenizer makes of a text, found by compiled scanners, and counted."""

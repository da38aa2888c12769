"""The kinds of runs: encode a corpus, count its words, measure a tokenizer."""

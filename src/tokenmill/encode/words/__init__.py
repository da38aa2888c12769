"""Splitting texts into pre-tokenized words with compiled scanners, and counting the words."""

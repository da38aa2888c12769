"""Arithmetic on sums and histograms of tokens."""

"""Measure tokenizers on texts, with sums that can be added in any order."""

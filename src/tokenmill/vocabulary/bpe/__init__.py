"""Byte-pair encoding: merges learnt from unique words, or learnt on top of a given vocabulary."""

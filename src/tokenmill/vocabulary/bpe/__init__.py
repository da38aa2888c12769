"""Learn byte-pair merges from counted words, or continue the merges of a given vocabulary."""

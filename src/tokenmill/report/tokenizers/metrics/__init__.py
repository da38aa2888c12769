"""Pure arithmetic over sums and histograms of tokens; nothing here reads a text."""

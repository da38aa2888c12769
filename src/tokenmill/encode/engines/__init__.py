"""Fast engines, and the checks that decide which tokenizers each may encode."""

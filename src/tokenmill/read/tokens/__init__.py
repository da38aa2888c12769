"""Files of token ids that other tools wrote."""

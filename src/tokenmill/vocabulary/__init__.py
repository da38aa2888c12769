"""Word counts become tokenizers: trained, extended, trimmed, and the advice on their size."""

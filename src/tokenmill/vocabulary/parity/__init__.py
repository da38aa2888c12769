"""Parity-aware byte-pair encoding: each merge serves the language that is worst off."""

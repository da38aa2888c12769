"""Parity-aware byte-pair encoding: each merge is chosen for the language compressed worst."""

"""What encodes: fast engines, and what each may be given."""

"""What is stored about a run while it lasts: receipts, damage, claims and heartbeats."""

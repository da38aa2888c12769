"""Figures as HTML: pages of their own, and small pictures for notebooks."""

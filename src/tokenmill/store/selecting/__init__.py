"""Choose documents of datasets for a view."""

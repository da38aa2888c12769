"""Reports on datasets, and on corpora before a build."""

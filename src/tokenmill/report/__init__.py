"""Looking at datasets, and at corpora before they become one."""

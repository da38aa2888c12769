"""Reading and writing datasets on disk; no other package knows their file formats."""

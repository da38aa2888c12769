"""The subjects of `tokenmill bench`: one file each."""

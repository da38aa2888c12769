"""The configuration of a build."""

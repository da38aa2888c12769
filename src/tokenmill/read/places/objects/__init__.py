"""Inputs in buckets and on web servers, read without a download."""

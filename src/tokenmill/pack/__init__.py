"""Lengths in, sequences out: pure functions over arrays that know no files."""

"""Agents started elsewhere: by Slurm, by Ray."""

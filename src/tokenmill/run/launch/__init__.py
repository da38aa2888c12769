"""Start agents on other machines with Slurm or Ray."""

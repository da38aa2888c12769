"""Where inputs are: on this machine, or on the Hugging Face Hub."""

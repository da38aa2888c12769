"""The start of a run: resolve the recipe, compare it with the output, and prepare the inputs."""

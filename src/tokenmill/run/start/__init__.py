"""Before the first unit: resolve, agree with what is there, prepare."""

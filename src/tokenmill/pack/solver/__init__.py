"""The solver of `optimal`: patterns of sizes, and a linear program over them."""

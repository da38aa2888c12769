"""Few sequences for many pieces: patterns of sizes, and the linear program over them."""

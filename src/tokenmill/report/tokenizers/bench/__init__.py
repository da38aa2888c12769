"""How fast a tokenizer encodes: single calls, batches, threads, processes, native engines."""

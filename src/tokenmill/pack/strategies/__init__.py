"""Packing strategies, one module each; `pack --packing some-name` is module `some_name`."""

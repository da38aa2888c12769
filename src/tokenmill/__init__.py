"""tokenmill: raw text to training batches.

import tokenmill

report = tokenmill.build("data/", tokenizer="tokenizer.json", out="corpus/")
tokenmill.verify("corpus/")
tokenmill.pack("corpus/", sequence_length=4096)
dataset = tokenmill.open("corpus/")
dataset.shards[0].document(0)  # token ids of the first document

`__init__.pyi` lists the public names. Each one is imported on first use.
"""

from __future__ import annotations

import functools


@functools.cache
def _homes() -> dict[str, str]:
    """Return the module that defines each public name, as the stub says."""
    import ast
    from pathlib import Path

    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text())
    lines = (line for line in stub.body if isinstance(line, ast.ImportFrom))
    return {name.name: str(line.module) for line in lines for name in line.names}


def __getattr__(name: str) -> object:
    if name == "__all__":
        return list(_homes())
    if name == "__version__":
        from tokenmill.core.installed import installed_version

        return installed_version("tokenmill")
    if name.startswith("__") or name not in _homes():
        raise AttributeError(f"module 'tokenmill' has no attribute {name!r}")
    value = getattr(__import__(_homes()[name], fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(_homes())

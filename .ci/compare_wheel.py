"""Whether the installed package holds every file of the source, the licence, and nothing else."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

source = Path(sys.argv[1]).resolve()
expected = {
    path.relative_to(source).as_posix()
    for path in source.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}
package = importlib.metadata.files("tokenmill") or []
installed = {
    path.relative_to("tokenmill").as_posix()
    for path in package
    if path.parts[0] == "tokenmill" and "__pycache__" not in path.parts
}
problems = [f"missing: {name}" for name in sorted(expected - installed)]
problems += [f"not in the source: {name}" for name in sorted(installed - expected)]
problems += [] if "py.typed" in installed else ["missing: py.typed"]
problems += [] if any(path.name == "LICENSE" for path in package) else ["missing: LICENSE"]
sys.exit("\n".join(problems) or None)

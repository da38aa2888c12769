"""What an example says where a package that it wants is not installed: no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("example", "missing", "extras"),
    [
        ("train.py", "torch", "torch"),
        ("train_with_trainer.py", "accelerate", "all,examples"),
        ("train_on_conversations.py", "trl", "all,examples"),
        ("run_notebook.py", "matplotlib", "all,examples"),
    ],
)
def test_an_example_says_what_to_install(example: str, missing: str, extras: str) -> None:
    hidden = (
        f"import sys, runpy; sys.modules[{missing!r}] = None; sys.path.insert(0, {str(EXAMPLES)!r})"
    )
    run = f"runpy.run_path({str(EXAMPLES / example)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}; {run}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert missing in done.stderr
    assert done.stderr.splitlines()[-1] == f"next: pip install '.[{extras}]'"
    assert "Traceback" not in done.stderr

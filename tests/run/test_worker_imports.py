"""Workers import what the calling program imports, nothing from the current folder, no pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import TEXTS, write_jsonl

SCRIPT = """
import sys
import tokenmill
from own_letters import Letters

class Own(Letters):
    pass

tokenmill.build(sys.argv[1], Own(), sys.argv[2], workers=2)
"""
MODULE = """
class Letters:
    vocab_size, eos_token, eos_token_id = 257, "<end>", 256

    def encode(self, text):
        return list(text.encode())
"""


def test_workers_find_modules_and_classes_of_a_script_and_nothing_of_the_current_folder(
    tmp_path: Path,
) -> None:
    pytest.importorskip("dill")  # for the class of a script without a guard
    source = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    program, current = tmp_path / "program", tmp_path / "current"
    program.mkdir()
    current.mkdir()
    (program / "script.py").write_text(SCRIPT)
    (program / "own_letters.py").write_text(MODULE)
    for name in ("psutil", "msgspec", "xxhash"):
        (current / f"{name}.py").write_text("open('imported', 'w')")
    subprocess.run(
        [sys.executable, program / "script.py", source, tmp_path / "out"],
        cwd=current,
        check=True,
        capture_output=True,
    )
    assert (tmp_path / "out" / "manifest.json").is_file()
    assert not (current / "imported").exists()


def test_a_build_does_not_import_pandas(tmp_path: Path, tokenizer_path: Path) -> None:
    """Arrow imports it at the first occasion, which costs half a second in every worker."""
    source = write_jsonl(tmp_path / "a.jsonl", TEXTS, id=map(str, range(len(TEXTS))))
    script = """
import sys
import tokenmill
tokenmill.build(sys.argv[1], sys.argv[2], sys.argv[3], workers=1)
print("pandas" in sys.modules)
"""
    arguments = [sys.executable, "-c", script, source, tokenizer_path, tmp_path / "out"]
    told = subprocess.run(arguments, check=True, capture_output=True)
    assert told.stdout.split() == [b"False"]


def test_neither_a_build_nor_its_workers_import_what_takes_long_and_is_not_used() -> None:
    code = (
        "import sys, tokenmill.run.worker, tokenmill.run.pipeline;"
        "print(sorted({'asyncio', 'email', 'importlib.metadata', 'zipfile'} & {*sys.modules}))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"

"""Tests and files that pages of the documentation name exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
GUARANTEES = (ROOT / "docs/explanation/guarantees.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs/contributing/architecture.md").read_text(encoding="utf-8")


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_a_test_that_exists() -> None:
    promises, _, tests = GUARANTEES.partition("## Tests\n")
    lists = [re.findall(r"`([\w/]+\.py)::(\w+)`", line) for line in tests.split("\n- ")[1:]]
    assert len(lists) == len(re.findall(r"^\*\*", promises, re.MULTILINE))
    assert all(lists)
    named = [test for tests in lists for test in tests]
    assert [(file, name) for file, name in named if name not in names_in(file)] == []


def test_every_file_that_the_architecture_names_exists() -> None:
    files = re.findall(r"`(\w+/[\w/]*(?:\.py|/))`", ARCHITECTURE)
    assert files
    assert [file for file in files if not (ROOT / "src/tokenmill" / file).exists()] == []


def test_every_public_name_has_a_place_in_the_reference() -> None:
    """As an entry, as a table of options, or as a module with a page of its own."""
    pages = (ROOT / "docs/reference/python").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    shown = {*re.findall(r"^::: tokenmill\.(\w+)", text, re.MULTILINE)}
    shown |= {*re.findall(r"[ :]tokenmill:(\w+)", text), "errors", "masks"}
    public = (ROOT / "src/tokenmill/__init__.pyi").read_text(encoding="utf-8")
    names = set(re.findall(r" as (\w+)$", public, re.MULTILINE))
    assert names - shown == set()

"""docs/explanation/guarantees.md names, for each promise, a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "explanation" / "guarantees.md").read_text(encoding="utf-8")
PROMISES, _, TABLE = PAGE.partition("## Tests\n")


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_promise_names_a_test_that_exists() -> None:
    promises = re.findall(r"^\*\*", PROMISES, re.MULTILINE)
    rows = [re.findall(r"`([\w/]+\.py)::(\w+)`", row) for row in TABLE.split("\n- ")[1:]]
    assert len(rows) == len(promises)
    assert all(rows)
    missing = [
        f"{file}::{name}" for row in rows for file, name in row if name not in names_in(file)
    ]
    assert missing == []

"""docs/contributing/faults.md has a row for every fault, and names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "contributing" / "faults.md").read_text(encoding="utf-8")
FAULTS = PAGE.partition("## Faults of processes")[2]
ROW = re.compile(r"^\| (\d+)(?:-(\d+))? \|.*\| (.*) \|$", re.MULTILINE)


@cache
def names_in(name: str) -> set[str]:
    tree = ast.parse((TESTS / name).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_fault_has_a_row() -> None:
    numbers = [
        number
        for first, last, _ in ROW.findall(FAULTS)
        for number in range(int(first), int(last or first) + 1)
    ]
    assert numbers == list(range(1, 83))


def test_every_named_test_exists() -> None:
    named = [(file, name) for file, name in re.findall(r"`([\w/]+\.py)::(\w+)`", FAULTS)]
    assert len(named) > 82
    assert [(file, name) for file, name in named if name not in names_in(file)] == []


def test_a_row_names_a_test_another_row_or_why_there_is_none() -> None:
    for first, _, tests in ROW.findall(FAULTS):
        assert "::" in tests or tests == "none" or re.fullmatch(r"\d+", tests), first

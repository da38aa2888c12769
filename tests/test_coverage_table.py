"""docs/contributing/coverage.md names, for each feature, a test that exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parent
COVERAGE = (TESTS.parent / "docs" / "contributing" / "coverage.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (?!feature|---)(.*) \| (.*) \| (.*) \|$", re.MULTILINE)


@cache
def names_in(name: str) -> set[str]:
    tree = ast.parse((TESTS / name).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_feature_names_a_test_that_exists() -> None:
    rows = ROW.findall(COVERAGE)
    named = {feature: re.findall(r"`([\w/]+\.py)::(\w+)`", tests) for feature, _, tests in rows}
    assert [feature for feature, tests in named.items() if not tests] == []
    missing = [
        f"{file}::{name}"
        for tests in named.values()
        for file, name in tests
        if name not in names_in(file)
    ]
    assert missing == []

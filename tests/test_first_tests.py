"""`make quick` runs the first tests of every file, so that it covers all and stays short."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import conftest


def test_the_first_tests_of_every_file_are_kept() -> None:
    config: Any = SimpleNamespace(getoption={"--first": 2}.get)
    items: list[Any] = [
        SimpleNamespace(path=Path(each[0]), name=each) for each in "a1 b1 a2 a3 b2".split()
    ]
    conftest.pytest_collection_modifyitems(config, items)
    assert [item.name for item in items] == ["a1", "b1", "a2", "b2"]

"""docs/reference/tokenizers.md names the engine that a tokenizer of each published shape gets."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
from pathlib import Path

import pytest
from published_kit import SHAPES, published

from tokenmill.encode import engine_ranking
from tokenmill.encode.engine_ranking import MEASURED_VERSIONS, rank_engines

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tokenizers.md"
SECTION = PAGE.read_text(encoding="utf-8").split("## Published tokenizers")[1].split("\n## ")[0]
LINES = re.findall(r"- \*\*(\w+)\*\*: (.*)", SECTION.replace("\n  ", " "))
ENGINES: dict[str, str] = {name: engine for engine, names in LINES for name in names.split(", ")}


def test_the_page_lists_all_published_tokenizers() -> None:
    assert sorted(ENGINES) == sorted(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_the_page_names_the_engine_of(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = {engine: version for engine, (_, version) in MEASURED_VERSIONS.items()}
    monkeypatch.setattr(engine_ranking, "installed_version", newest.__getitem__)
    installed = importlib.machinery.ModuleSpec("engine", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: installed)
    assert rank_engines(published(name), control_tokens=False).names[0] == ENGINES[name]

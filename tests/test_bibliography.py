"""Every paper with an arXiv number is in the bibliography, and is named where that says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "bibliography.md"
NUMBER = re.compile(r"(?:arXiv[ :]|arxiv\.org/(?:abs|html|pdf)/)(\d{4}\.\d{4,5})")
FOLDERS = ("src", "docs", "examples", "bench", "demo")


def named() -> dict[str, set[str]]:
    """The files that name each number."""
    found: dict[str, set[str]] = {}
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for path in [*paths, ROOT / "README.md"]:
        if path.suffix in (".py", ".md", ".ipynb") and path != PAGE:
            text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
            for number in NUMBER.findall(text):
                found.setdefault(number, set()).add(path.relative_to(ROOT).as_posix())
    return found


def rows() -> list[list[str]]:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    return [row for row in cells if not set(row[0]) <= set("-") and row[0] != "paper"]


def test_every_arxiv_number_is_listed_once() -> None:
    listed = [row[1] for row in rows() if row[1]]
    assert sorted(listed) == sorted(named())


def test_every_place_exists_and_names_the_paper() -> None:
    files = named()
    for paper, number, _, where in rows():
        for place in re.findall(r"`([^`]+)`", where):
            root = (
                ROOT
                if place.startswith(("examples/", "bench/", "docs/"))
                else ROOT / "src/tokenmill"
            )
            path = root / place
            assert path.exists(), f"{paper}: {place}"
            if number and path.is_file():
                assert path.relative_to(ROOT).as_posix() in files[number], f"{paper}: {place}"

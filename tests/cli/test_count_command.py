"""`tokenmill tokenizer count`: what is shown, for people and for machines, and how it stops."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from conftest import Printed, write_jsonl
from tokenmill.cli import main, meter
from tokenmill.core.errors import Interrupted
from tokenmill.run.tasks import count as run_count

SPLIT = ("--split", "whitespace", "--workers", "1")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    languages = ["en", "de", None]
    return write_jsonl(tmp_path / "a.jsonl", ["a b a", "b", "c"], language=languages)


def counted(capsys: Printed, *arguments: object) -> tuple[int, list[str], str]:
    """Exit code, lines of standard output, and standard error."""
    code = main(["tokenizer", "count", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out.splitlines(), shown.err


def test_the_summary_says_what_was_counted(
    corpus: Path, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meter, "PLAIN_SECONDS", math.inf)  # no line of progress on a slow machine
    out = tmp_path / "counts"
    options = [*SPLIT, "--by", "language", "--min-count", 2]
    code, lines, errors = counted(capsys, corpus, "--out", out, *options)
    assert code == 0
    facts = [
        line[14:] for line in lines if line[:14].strip() in ("documents", "words", "left out", "")
    ]
    assert facts[1:] == [
        "3 of 3 records",
        "2 in 3 groups",
        "en: 2, 1 unique; 2 B",
        "(none): 0, 0 unique; 0 B",
        "de: 0, 0 unique; 0 B",
        "3 words with fewer than 2 occurrences: 3 occurrences, 3 B",
        "",
    ]  # fmt: skip
    assert lines[-1] == f"next: tokenmill tokenizer train {out} --out tokenizer/"
    said = "1 file, 100 B, split into words by whitespace, grouped by language\n"
    assert errors == f"     reading  {said}"


def test_the_same_command_again_has_nothing_to_do(
    corpus: Path, tmp_path: Path, capsys: Printed
) -> None:
    for expected in (False, True):
        _, lines, _ = counted(capsys, corpus, "--out", tmp_path / "counts", *SPLIT)
        assert ("nothing to do: the counts are complete" in lines) == expected


def test_events_are_json_lines(corpus: Path, tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "counts"
    code, lines, _ = counted(capsys, corpus, "--out", out, *SPLIT, "--json")
    events = [json.loads(line) for line in lines]
    assert code == 0
    assert [event["event"] for event in events if event["event"] != "progress"] == [
        "prepared", "engine", "finished",
    ]  # fmt: skip
    assert events[-1]["groups"] == {
        "": {
            "words": 3, "occurrences": 5, "bytes": 5,
            "left_out": {"words": 0, "occurrences": 0, "bytes": 0},
        }
    }  # fmt: skip
    assert events[-1]["counts_id"] == json.loads((out / "counts.json").read_text())["counts_id"]


def test_a_count_that_is_stopped_says_how_to_resume(
    corpus: Path, tmp_path: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Interrupted(2)

    monkeypatch.setattr(run_count, "_merge_runs", stop)
    code, _, errors = counted(capsys, corpus, "--out", tmp_path / "counts", *SPLIT)
    assert code == 130
    stopped = errors[errors.index("tokenmill:") :].splitlines()
    assert stopped[0] == "tokenmill: interrupted; 1 finished unit is kept"
    assert stopped[1] == "resume with the same command:"
    monkeypatch.undo()
    code, lines, _ = counted(capsys, corpus, "--out", tmp_path / "counts", *SPLIT)
    assert code == 0
    assert any(line.startswith("      reused  1 finished unit") for line in lines)

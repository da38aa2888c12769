"""Bars and histograms: on terminals as wide as they are, never in a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tokenmill
from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.cli.tables import bar_lines, length_lines, with_bar
from tokenmill.reports.lengths.counts import Bin

Terminal = Callable[[int], None]
BINS = [Bin(1, 1, 2, 2), Bin(2, 3, 8, 20), Bin(4, 7, 0, 0), Bin(8, 15, 4, 40)]
LONG = [("a/very/long/name/of/a/source.jsonl", 2.0, "2.00"), ("short", 1.0, "1.00")]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Makes standard output a terminal without colours, of some width."""

    def make(columns: int) -> None:
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(sys.stdout, "fileno", lambda: 1)
        monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))

    return make


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Documents of 4, 4, 8 and 2 tokens (digits and an end) of two sources."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = [
        write_jsonl(folder / "a.jsonl", ["123", "456", "7890123"]),
        write_jsonl(folder / "b\x1b[31m.jsonl", ["4"]),
    ]
    tokenmill.build(paths, tokenizer_path, folder / "out", workers=1, sequence_length=5)
    return folder / "out"


def shown(capsys: Printed, *arguments: object) -> list[str]:
    capsys.readouterr()
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def test_a_histogram_is_as_wide_as_the_terminal(terminal: Terminal) -> None:
    terminal(60)
    assert length_lines(BINS) == [
        "lengths in tokens, shares of documents and of tokens",
        "",
        "      1  █████████                              14.3%   3.2%",
        " 2 to 3  ████████████████████████████████████   57.1%  32.3%",
        " 4 to 7                                          0.0%   0.0%",
        "8 to 15  ██████████████████                     28.6%  64.5%",
    ]
    terminal(40)
    assert length_lines(BINS, ", from 9 documents") == [
        "lengths in tokens, shares of documents",
        "and of tokens, from 9 documents",
        "",
        "      1  ████               14.3%   3.2%",
        " 2 to 3  ████████████████   57.1%  32.3%",
        " 4 to 7                      0.0%   0.0%",
        "8 to 15  ████████           28.6%  64.5%",
    ]


def test_a_pipe_gets_figures_only(capsys: Printed) -> None:
    assert list(bar_lines(LONG)) == [
        "a/very/long/name/of/a/source.jsonl  2.00",
        "                             short  1.00",
    ]
    assert with_bar("50%", 0.5, 4) == "50%"


def test_a_dumb_terminal_gets_figures_only(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal(80)
    monkeypatch.setenv("TERM", "dumb")
    assert with_bar("50%", 0.5, 4) == "50%"


def test_a_bar_takes_the_room_that_is_left(terminal: Terminal) -> None:
    terminal(80)
    assert with_bar("50%", 0.5, 4) == "50%  ██████████··········"
    terminal(19)
    assert with_bar("50%", 0.5, 4) == "50%  █████·····"
    terminal(12)
    assert with_bar("50%", 0.5, 4) == "50%"


def test_long_names_beside_bars_lose_their_middle(terminal: Terminal) -> None:
    terminal(40)
    assert list(bar_lines(LONG)) == [
        "a/very/…ce.jsonl  ████████████████  2.00",
        "           short  ████████          1.00",
    ]


def test_inspect_draws_lengths_and_sources(
    dataset: Path, terminal: Terminal, capsys: Printed
) -> None:
    terminal(60)
    lines = shown(capsys, "inspect", dataset)
    start = next(at for at, line in enumerate(lines) if line.startswith("source"))
    assert lines[start : start + 9] == [
        "source           documents  tokens  rejected           share",
        "a.jsonl                  3      16         0   88.9%  █████▍",
        r"b\x1b[31m.jsonl          1       2         0   11.1%  ▋·····",
        "",
        "lengths in tokens, shares of documents and of tokens",
        "",
        " 2 to 3  ██████████████████                     25.0%  11.1%",
        " 4 to 7  ████████████████████████████████████   50.0%  44.4%",
        "8 to 15  ██████████████████                     25.0%  44.4%",
    ]


def test_inspect_draws_rows_of_a_plan(dataset: Path, terminal: Terminal, capsys: Printed) -> None:
    terminal(60)
    assert shown(capsys, "inspect", dataset, "--plan", "best-fit-5")[-5:] == [
        "",
        "           0  ██████████████████████······  1 segment",
        "           1  ██████████████████████······  1 segment",
        "           2  ████████████████████████████  1 segment",
        "           3  █████████████████▓▓▓▓▓▓▓▓▓▓▓  2 segments",
    ]


@pytest.mark.parametrize("columns", [40, 60])
def test_no_picture_is_wider_than_the_terminal(
    columns: int, dataset: Path, tokenizer_path: Path, terminal: Terminal, capsys: Printed
) -> None:
    terminal(columns)
    lines = shown(capsys, "inspect", dataset)
    lines += shown(capsys, "inspect", dataset, "--plan", "best-fit-5")
    lines += shown(capsys, "analyze", dataset)
    lines += shown(capsys, "pack", dataset, "--sequence-length", 8, "--compare")
    lines += shown(
        capsys, "tokenizer", "report", tokenizer_path, "--on", dataset.parent / "a.jsonl"
    )
    drawn = [line for line in lines if set(line) & set("█▏▎▍▌▋▊▉░▒▓·")]
    assert len(drawn) > 20
    assert [line for line in drawn if len(line) > columns] == []


def test_a_report_on_tokenizers_draws_bytes_per_token_by_group(
    dataset: Path, tokenizer_path: Path, terminal: Terminal, capsys: Printed, tmp_path: Path
) -> None:
    data = write_jsonl(tmp_path / "a.jsonl", ["1234", "the fox"], lang=["digits", "en"])
    other = tmp_path / "other.json"
    other.write_bytes(tokenizer_path.read_bytes())
    name = tokenizer_path.parent.name
    command = ("tokenizer", "report", tokenizer_path, other, "--on", data, "--by", "lang")
    assert "bytes per token" not in shown(capsys, *command)
    terminal(60)
    lines = shown(capsys, *command)
    start = lines.index("bytes per token")
    assert lines[start : start + 6] == [
        "bytes per token",
        "",
        f"digits {name}  █████████▍                         1.0000",
        "     digits other  █████████▍                         1.0000",
        f"    en {name}  █████████████████████████████████  3.5000",
        "         en other  █████████████████████████████████  3.5000",
    ]

"""How far something has come: on terminals of several widths, and elsewhere."""

from __future__ import annotations

import re
import sys

import pytest
from corpora import on_terminal

from conftest import Printed
from tokenmill.cli import meter as module
from tokenmill.cli.meter import meter

DRAWN = """
from tokenmill.cli.display import Shown, display_for
from tokenmill.run.progress import Snapshot
from tokenmill.run.executor import Tally

snapshot = dict(
    elapsed_seconds=100.0, done_bytes=10**9, total_bytes=4 * 10**9, read_bytes=3 * 10**9,
    written_bytes=10**9, documents=1_234_567, tokens=7 * 10**8, rejected=3, num_workers=2,
    cpu_cores=1.9, memory_bytes=612_000_000, peak_bytes=0, resumed_bytes=0, num_awaited=AWAITED,
    resumed=Tally(documents=234_567, tokens=10**8, bytes=10**9),
)
shown = Shown(facts=None, opening=None, counted="tokens", lines=None, values=None)
with display_for(shown, json=False) as display:
    display.progress(Snapshot(**{**snapshot, **CHANGED}))
"""


def drawn(columns: int, awaited: int = 0, **changed: float) -> str:
    """The longest line on a terminal of so many columns while a run goes on."""
    code = DRAWN.replace("AWAITED", str(awaited)).replace("CHANGED", repr(changed))
    return max(re.split(r"[\r\n]+", on_terminal(columns, "-c", code)), key=len)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (60, "eta 5:00, 6,000,000 tokens/s"),
        (80, "eta 5:00, 6,000,000 tokens/s, 20 MB/s of text"),
        (
            180,
            "eta 5:00, 6,000,000 tokens/s, 20 MB/s of text, 10,000 documents/s, "
            "1,234,567 documents, 3 rejected, 1.9 cores, 612 MB",
        ),
    ],
)
def test_a_line_has_as_many_whole_parts_as_fit(columns: int, text: str) -> None:
    line = drawn(columns)
    assert len(line.rstrip()) <= columns
    assert line.split("% ", 1)[1].rstrip() == text


def test_waiting_for_others_fits_as_well() -> None:
    line = drawn(80, awaited=3)
    assert line.split("% ", 1)[1].rstrip() == "waiting for 3 items of other agents"
    assert drawn(40, awaited=3).split("% ", 1)[1].rstrip() == "waiting for…ther agents"


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"done_bytes": 4 * 10**9}, "writing the last files and the manifest"),
        ({"elapsed_seconds": 0.5}, "1,200,000,000 tokens/s, 4.00 GB/s of text"),
        ({"read_bytes": 10**9 + 10**5}, "eta 5:00, 6,000,000 tokens/s, 1 kB/s of text"),
        ({"documents": 234_567, "rejected": 0}, "reading the first documents"),
    ],
)
def test_a_line_has_no_empty_figures(changed: dict[str, float], text: str) -> None:
    assert drawn(66, **changed).split("% ", 1)[1].rstrip() == text


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


def test_off_a_terminal_a_line_is_printed_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    clock = Clock(monkeypatch)
    with meter() as advance:
        for done in range(0, 101, 10):
            advance("counting", done, 100)
            clock.now += 4
    assert capsys.readouterr().err == (
        "      30.0%  counting, 0:28 left\n"
        "      60.0%  counting, 0:16 left\n"
        "      90.0%  counting, 0:04 left\n"
    )


def test_off_a_terminal_no_line_is_repeated(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    clock = Clock(monkeypatch)
    line = module.Meter()
    for share in (0.0, 0.0, 0.0, 0.5):
        clock.now += 10
        line.draw(share, "merges")
    assert capsys.readouterr().err == "       0.0%  merges\n      50.0%  merges\n"


def test_a_terminal_shows_one_line_which_goes_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    clock = Clock(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with meter() as advance:
        advance("merging", 1, 4)
        clock.now += 2
        advance("merging", 2, 4)
    erase = "\r\x1b[K"
    assert capsys.readouterr().err == (
        f"{erase}██▌·······  25% merging{erase}█████·····  50% merging, 0:04 left{erase}"
    )


def test_the_time_left_follows_the_recent_rate_and_is_left_out_until_it_is_steady(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, shown = Clock(monkeypatch), []
    line = module.Meter()
    monkeypatch.setattr(line, "draw", lambda _, text: shown.append(text))
    for done in (0, 1, 2, 3, 4, 14, 24, 34, 44, 54, 64, 100):  # slow at first, as merges are
        line.advance("merges", done, 100)
        clock.now += 2
    line.advance("writing", 0, 1)
    assert shown == [
        *("merges",) * 5,
        *("merges, 0:43 left", "merges, 0:22 left", "merges, 0:17 left", "merges, 0:11 left"),
        *("merges, 0:09 left", "merges, 0:07 left", "merges", "writing"),
    ]


def test_a_full_bar_is_drawn_at_once(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    Clock(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    line = module.Meter()
    for share, text in ((0.99, "counting"), (0.995, "counting"), (1.0, "merging counts")):
        line.draw(share, text)
    assert capsys.readouterr().err == (
        "\r\x1b[K█████████▉  99% counting\r\x1b[K██████████ 100% merging counts"
    )

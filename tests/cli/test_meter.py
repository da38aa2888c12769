"""How far something has come, on a terminal and elsewhere."""

import sys

import pytest

from tokenmill.cli import meter as module
from tokenmill.cli.meter import meter


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


def test_off_a_terminal_a_line_is_printed_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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


def test_what_is_quick_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with meter() as advance:
        advance("counting", 1, 2)
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_one_line_which_goes_at_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
        f"{erase}██▌·······  25% merging{erase}█████·····  50% merging, 0:02 left{erase}"
    )

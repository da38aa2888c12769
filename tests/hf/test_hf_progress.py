"""How far a run has come: a bar for people, lines for a log."""

from __future__ import annotations

import io
import logging
import re
import sys

import pytest

from tokenmill.hf import summary
from tokenmill.hf.summary import progress


class Terminal(io.StringIO):
    """What a person looks at."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_a_bar_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress(4_000_000, shown=True) as advance:
        advance(1_000_000)
        advance(2_000_000)
    shown = terminal.getvalue().splitlines()[-1]
    assert "tokenizing: 100%" in shown
    assert "3.00M/3.00M" in shown


def test_a_log_gets_lines_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tokenmill.hf")
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # no notebook
    monkeypatch.setattr(summary, "LINE_SECONDS", 0.0)
    with progress(4_000_000, shown=True) as advance:
        advance(1_000_000)
    monkeypatch.setattr(summary, "LINE_SECONDS", 1000.0)
    with progress(4_000_000, shown=True) as advance:
        advance(1_000_000)
    (line,) = caplog.messages
    assert re.fullmatch(
        r"tokenizing: 25%, \S+ [kMG]?B of text a second, \d+\.\d cores, \S+ [MG]B of memory", line
    )

"""How far something has come: on terminals of several widths, and elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from conftest import Printed
from tokenmill.cli import meter as module
from tokenmill.cli.meter import meter

DRAWN = """
from tokenmill.cli.display import Shown, display_for
from tokenmill.run.progress import Snapshot

snapshot = Snapshot(
    elapsed_seconds=100.0, done_bytes=10**9, total_bytes=4 * 10**9, read_bytes=3 * 10**9,
    written_bytes=10**9, documents=1_234_567, tokens=7 * 10**8, rejected=3, num_workers=2,
    cpu_cores=1.9, memory_bytes=612_000_000, peak_bytes=0, resumed_bytes=0, num_awaited=AWAITED,
)
shown = Shown(facts=None, counted="tokens", writes=True, lines=None, values=None)
with display_for(shown, json=False) as display:
    display.progress(snapshot)
"""


def on_terminal(columns: int, awaited: int = 0) -> str:
    """What stands on a terminal of so many columns while a run goes on."""
    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    code = DRAWN.replace("AWAITED", str(awaited))
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal, check=False,
        env={**environment, "TERM": "xterm"},
    )  # fmt: skip
    os.close(terminal)
    text = b""
    while chunk := _read(main):
        text += chunk
    os.close(main)
    assert done.returncode == 0, text.decode()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode())
    return max(re.split(r"[\r\n]+", plain), key=len)


def _read(main: int) -> bytes:
    try:
        return os.read(main, 65536)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (60, "eta 5:00, 30 MB/s, 7.0 M tokens/s"),
        (80, "eta 5:00, 30 MB/s, 7.0 M tokens/s, 1,234,567 documents"),
        (
            160,
            "eta 5:00, 30 MB/s, 7.0 M tokens/s, 1,234,567 documents, 3 rejected, 1.9 cores, "
            "10 MB/s to disk, 612 MB",
        ),
    ],
)
def test_a_line_has_as_many_whole_parts_as_fit(columns: int, text: str) -> None:
    line = on_terminal(columns)
    assert len(line.rstrip()) <= columns
    assert line.split("% ", 1)[1].rstrip() == text


def test_waiting_for_others_fits_as_well() -> None:
    line = on_terminal(80, awaited=3)
    assert line.split("% ", 1)[1].rstrip() == "waiting for 3 items of other agents"


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
        f"{erase}██▌·······  25% merging{erase}█████·····  50% merging, 0:02 left{erase}"
    )

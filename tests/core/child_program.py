"""What the children of `test_child.py` do; they import this module by its name."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

from tokenmill.core.child import Parent


class Work(msgspec.Struct):
    """To the child: what to do."""

    what: str
    number: int = 0


def print_and_close(_: int) -> None:
    """Print as a library does, and end the output."""
    print("a library prints this", flush=True)
    print("to stderr", file=sys.stderr, flush=True)
    os.close(1)
    os.close(2)


def spin(_: int) -> None:
    """Take time."""
    while True:
        pass


def grow(_: int) -> None:
    """Take memory."""
    held = [bytearray(b"1" * (1 << 20))]
    while True:
        held.append(bytearray(held[0]))


WORK = {
    "die": lambda number: os.kill(os.getpid(), number),
    "exit": os._exit,
    "grow": grow,
    "print": print_and_close,
    "sleep": time.sleep,
    "spin": spin,
}


def main() -> None:
    """Do what the parent says, and answer with the same message and its bytes in reverse."""
    parent = Parent(Work)
    while True:
        work, data = parent.receive()
        if work.what == "at end":
            parent.at_end = Path(data.decode()).touch
        elif work.what in WORK:
            WORK[work.what](work.number)
        parent.send(work, bytes(reversed(data)))

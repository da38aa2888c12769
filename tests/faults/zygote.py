"""Runs command lines, each in a forked process of its own, so that imports are paid for once.

Orders come in on standard input, one JSON object a line: arguments, environment, and the file for
standard error. Exit codes go out; they are negative for a process that a signal ended.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import sys

from tokenmill.cli import main
from tokenmill.read import units

units.MIN_UNIT_BYTES = 16 << 10
units.PIECE_BYTES = 2 << 10


def run(order: dict[str, object]) -> int:
    """Run one command line to its end."""
    names, into = os.pipe()
    child = os.fork()
    if child:
        os.close(into)
        with open(names) as file:
            learn(file.read().split())
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.close(names)
    os.environ.update(order["environment"])  # type: ignore[call-overload]
    errors = os.open(str(order["errors"]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    known = set(sys.modules)
    try:
        code = main(order["arguments"])  # type: ignore[arg-type]
    finally:
        os.write(into, "\n".join(set(sys.modules) - known).encode()[: 32 << 10])
    sys.exit(code)


def learn(modules: list[str]) -> None:
    """Load what a command has loaded, so that the next one need not."""
    for name in modules:
        with contextlib.suppress(ImportError):  # modules that their packages make as they run
            importlib.import_module(name)
    gc.freeze()  # a collection in a child would copy all pages


def warm_up() -> None:
    """Compile what commands compile, without starting a thread: a fork would lose it."""
    from tokenmill.kernels.interpreted import MOST_STEPS
    from tokenmill.packing.comparison import warm_up
    from tokenmill.packing.options import PackOptions

    warm_up(PackOptions(sequence_length=64), MOST_STEPS + 1)


if __name__ == "__main__":
    warm_up()
    gc.freeze()
    for line in sys.stdin:
        print(run(json.loads(line)), flush=True)

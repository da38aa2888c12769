"""A server in a process of its own, which says its port and ends with its test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def python_server(script: Path, *arguments: str) -> Iterator[int]:
    """Run a script that prints its port and ends when its input does; yield the port."""
    command = [sys.executable, "-W", "ignore", str(script), *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.terminate()

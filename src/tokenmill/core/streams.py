"""Standard output and error that do not stop the work if their reader disappears."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tokenmill.core.errors import StorageError


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Replace stdout and stderr with streams that discard output after their first failure.

    A descriptor that was closed at the start is opened on the null device. Otherwise the next file
    of a dataset would get its number, and libraries would print into that file.

    Raises:
        StorageError: standard output is a file, and the file system refused a write to it; or
            there is output, and only standard output was closed at the start.
    """
    closed = [descriptor for descriptor in range(3) if _is_closed(descriptor)]
    for descriptor in closed:
        refuses = descriptor == 1 and 2 not in closed  # with both closed, nobody wants to read
        # `open` takes the lowest free descriptor, which is this one. Workers inherit it.
        opened = os.open(os.devnull, os.O_RDONLY if refuses else os.O_RDWR)
        os.set_inheritable(opened, True)
    before = sys.stdout, sys.stderr
    if sys.stdout is sys.__stdout__:  # else the caller has redirected it
        sys.stdout = _stream(1, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(2, sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def _stream(descriptor: int, replaced: TextIO | None) -> TextIO:
    settings: dict[str, Any] = {"encoding": "utf-8", "errors": "backslashreplace"}
    if isinstance(replaced, io.TextIOWrapper):  # else it was closed
        replaced.flush()
        names = ("encoding", "errors", "line_buffering", "write_through")
        settings = {name: getattr(replaced, name) for name in names}
    return io.TextIOWrapper(io.BufferedWriter(_Descriptor(descriptor)), **settings)


class _Descriptor(io.FileIO):
    """A descriptor that discards all writes after its first failure."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._is_result = descriptor == 1 and not os.isatty(descriptor)

    def write(self, data: Any, /) -> int:
        """Write bytes; if the reader is gone, discard them."""
        try:
            return super().write(data)
        except OSError as error:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if self._is_result and not isinstance(error, BrokenPipeError | ConnectionResetError):
                raise StorageError(
                    "cannot write the output",
                    where="standard output",
                    why=error.strerror or str(error),
                    hint="free some space, or write the output elsewhere",
                ) from error
            return len(data)

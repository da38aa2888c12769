"""Files that users write, with one value a line: ids, strings, texts."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path, path_error

LINES_AT_ONCE = 1 << 14


def read_lines(file: str | Path, kind: str) -> Iterator[tuple[int, list[bytes]]]:
    """Yield many lines at once, without their ends, and the number of the first one, from 1 on.

    A byte order mark is left out. `kind` says what the file is, for messages.

    Raises:
        UserError: the file cannot be read, or is not UTF-8.
    """
    path, first = local_path(file, kind), 1
    try:
        with path.open("rb") as opened:
            while lines := list(islice(opened, LINES_AT_ONCE)):
                b"".join(lines).decode()
                if first == 1:
                    lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
                yield first, [line.rstrip(b"\r\n") for line in lines]
                first += len(lines)
    except OSError as error:
        why = error.strerror or str(error)
        raise path_error(error)(f"cannot read {kind}", where=str(file), why=why) from error
    except UnicodeDecodeError as error:
        number = first + error.object[: error.start].count(b"\n")
        why = f"line {number} is not valid UTF-8"
        raise UserError(f"cannot read {kind}", where=str(file), why=why) from error

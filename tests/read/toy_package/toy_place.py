"""A place whose files are in no file: toy://COUNT.netstrings and toy://COUNT.jsonl are computed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from tokenmill.core.errors import InputChangedError, UserError
from tokenmill.read.range_file import RangeFile
from tokenmill.read.source import Access, Place, Source


class Toy(Place):
    """Numbers, written out as texts."""

    def list(self, names: Sequence[str], access: Access) -> Mapping[str, Sequence[Source]]:
        return {name: [listed(name)] for name in names}

    def open(self, source: Source, check: Callable[[], None]) -> BinaryIO:
        if listed(source.location).version != source.version:
            raise InputChangedError("a toy changed", where=source.location)
        return cast(BinaryIO, ToyFile(data_of(source.location), check))

    def find_again(self, source: Source, path: Path) -> Source:
        return source


class ToyFile(RangeFile):
    """Bytes in memory."""

    def __init__(self, data: bytes, check: Callable[[], None]) -> None:
        super().__init__(len(data))
        self._data, self._check = data, check

    def read(self, size: int = -1) -> bytes:
        self._check()
        stop = None if size < 0 else self._position + size
        piece = self._data[self._position : stop]
        self._position += len(piece)
        return piece


def listed(name: str) -> Source:
    data = data_of(name)
    return Source(
        name=name.removeprefix("toy://"),
        place="toy",
        location=name,
        version=hashlib.sha256(data).hexdigest(),
        num_bytes=len(data),
    )


def data_of(name: str) -> bytes:
    count, _, suffix = name.removeprefix("toy://").partition(".")
    if not count.isdigit() or suffix not in ("netstrings", "jsonl"):
        raise UserError("there is no such toy", where=name, hint="try toy://10.netstrings")
    texts = [
        f"{number} is {number // 7} times seven, and {number % 7}" for number in range(int(count))
    ]
    if suffix == "jsonl":
        return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    return "".join(f"{len(text)}:{text}," for text in texts).encode()

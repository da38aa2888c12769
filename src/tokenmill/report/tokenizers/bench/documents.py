"""The documents to encode: those of the user, or text that every machine has."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Extent

MAX_BYTES = 64 << 20
"""All documents of a measurement together, in UTF-8; every process that encodes holds them."""
LIBRARY_CHARACTERS = 2_000
READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Documents:
    """Texts and facts about them."""

    texts: list[str]
    num_bytes: int
    """In UTF-8."""
    origin: str
    notes: list[str]


def take_documents(num_documents: int, inputs: Sequence[str], text_field: str) -> Documents:
    """The first documents of the inputs; without inputs, parts of Python's own library.

    Raises:
        UserError: the inputs hold no document.
        DataError: an input is damaged.
    """
    rejected: list[int] = []
    found = _read(inputs, text_field, rejected) if inputs else _library_texts()
    origin = ", ".join(inputs) if inputs else "sources of Python's standard library"
    texts: list[str] = []
    notes: list[str] = []
    num_bytes = 0
    for text in islice(found, num_documents):
        size = len(text.encode())
        if num_bytes + size > MAX_BYTES:
            notes.append(f"no more than {MAX_BYTES >> 20} MiB of text are taken")
            break
        texts.append(text)
        num_bytes += size
    if not texts:
        raise UserError("no documents to encode", where=origin, hint="check --text-field")
    if len(texts) < num_documents:
        notes.append(f"{len(texts):,} documents, where {num_documents:,} were asked for")
    if rejected:
        notes.append(f"{sum(rejected):,} records were rejected on the way")
    return Documents(texts, num_bytes, origin, notes)


def _read(inputs: Sequence[str], text_field: str, rejected: list[int]) -> Iterator[str]:
    sources = find_sources(inputs)
    reader = Reader(sources, Fields(text=text_field), READ_BYTES)
    for source in sources:
        for batch in reader.read(Extent(source.index)):
            if batch.rejected:
                rejected.append(len(batch.rejected))
            yield from filter(None, batch.texts)


def _library_texts() -> Iterator[str]:
    """The sources of the standard library, split into parts of equal length."""
    for folder, folders, files in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = sorted({*folders} - {"site-packages", "test", "tests"})
        for name in sorted(file for file in files if file.endswith(".py")):
            try:
                text = (Path(folder) / name).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            for start in range(0, len(text), LIBRARY_CHARACTERS):
                yield text[start : start + LIBRARY_CHARACTERS]

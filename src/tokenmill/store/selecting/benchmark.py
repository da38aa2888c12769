"""Read the texts of a benchmark, and index the runs of words in them."""

from __future__ import annotations

import codecs
import hashlib
import os
from array import array
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path, path_error
from tokenmill.core.records import Int32Array, Int64Array, UInt8Array, UInt64Array
from tokenmill.core.values import counted
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.words.compared import characters
from tokenmill.kernels.shared_runs import Runs, Words, index_runs, run_hashes, words_of

LINES_AT_ONCE = 1 << 12
MOST_WORDS = 1 << 24
"""Memory is about 100 bytes for each word."""
SUFFIXES = (".txt", ".jsonl")


class Benchmark:
    """Texts, one a line of a file, and the runs of normalized words in them.

    A line of JSON is one text, and each string in it has words of its own: no run crosses strings.

    Raises:
        UserError: a file cannot be read, or no text has enough words.
    """

    def __init__(self, name: str, length: int) -> None:
        self.name, self.length = name, length
        self._lines = array("q")
        """The line of each text."""
        # Random, so that no words can be crafted that all have the same hash.
        self._key, factor = np.frombuffer(os.urandom(16), np.uint64)
        self._factor = factor | np.uint64(1)
        digest, owners = hashlib.sha256(), array("i")
        parts = list(self._read(local_path(name, "a file of texts"), digest, owners))
        self.digest = digest.hexdigest()
        if not self._lines:
            hint = f"write one text a line: {' or '.join(SUFFIXES)}"
            raise UserError("a file of texts is empty", where=name, hint=hint)
        self._index(_joined(parts), np.array(owners, np.int32))

    def __len__(self) -> int:
        return len(self._lines)

    def label(self, text: int) -> str:
        """Return the file and the line of a text."""
        return f"{self.name}:{self._lines[text]}"

    def words_of(self, data: UInt8Array, offsets: Int64Array) -> tuple[Words, UInt64Array]:
        """Return the words of texts in UTF-8, and the hashes of their runs."""
        words = words_of(data, offsets, characters(), self._key)
        return words, run_hashes(words, self.length, self._factor)

    def shared_words(self, place: int, words: Words, word: int, document: int) -> bytes:
        """Return the words from `place` on that a document also has from one of its words on."""
        own = self.runs.words
        last = self._edges[self._edges.searchsorted(place, side="right")]
        ours = own.data[own.starts[place] : own.starts[last]]
        theirs = words.data[words.starts[word] : words.starts[words.edges[document + 1]]]
        size = min(len(ours), len(theirs))
        differs = ours[:size] != theirs[:size]
        first = int(differs.argmax())
        same = ours[: first if differs[first] else size]
        return same.tobytes().rpartition(b" ")[0]

    def beginning(self, text: int, num_words: int) -> str:
        """Return the first words of a text."""
        starts = self.runs.words.starts
        first, last = np.searchsorted(self.runs.texts, [text, text + 1]).tolist()
        stop = min(last, first + num_words)
        return self.runs.words.data[starts[first] : starts[stop]].tobytes().decode().rstrip()

    def _index(self, words: Words, owners: Int32Array) -> None:
        """Index the runs; `owners` has the number of the text of each string."""
        codes = run_hashes(words, self.length, self._factor)
        texts: Int32Array = np.repeat(owners, np.diff(words.edges))
        has_runs = np.zeros(len(self), np.bool_)
        has_runs[texts[codes != 0]] = True
        self.too_short = np.flatnonzero(~has_runs)
        """Texts without a run: no string in them has enough words."""
        if not has_runs.any():
            raise UserError(
                "no text is long enough to be found",
                where=self.name,
                why=f"each of {counted(len(self), 'text')} has fewer than {self.length} words",
                hint="ask for shorter runs: --words",
            )
        slots = np.zeros(1 << (2 * len(codes)).bit_length(), np.uint64)
        following = index_runs(words, codes, texts, self.length, slots)
        self.runs = Runs(words, texts, slots, following)
        self._edges = np.unique(words.edges)

    def _read(self, path: Path, digest: hashlib._Hash, owners: array[int]) -> Iterator[Words]:
        """Yield the words of a file's strings, and add the text of each string to `owners`."""
        if path.suffix not in SUFFIXES:
            hint = f"write one text a line: {' or '.join(SUFFIXES)}"
            why = f"its name ends in {path.suffix or 'nothing'}"
            raise UserError("cannot read a file of texts", where=str(path), why=why, hint=hint)
        first, num_words = 1, 0
        try:
            with path.open("rb") as file:
                while lines := list(islice(file, LINES_AT_ONCE)):
                    digest.update(b"".join(lines))
                    strings: list[bytes] = []
                    for number, line in enumerate(lines, first):
                        self._add(path, number, line, strings, owners)
                    first += len(lines)
                    edges = offsets_from_lengths([len(each) for each in strings])
                    data = np.frombuffer(b"".join(strings), np.uint8)
                    words = words_of(data, edges, characters(), self._key)
                    num_words += len(words.hashes)
                    if num_words > MOST_WORDS:
                        why = f"it has more than {MOST_WORDS:,} words"
                        hint = "split it, and select with one part after the other"
                        what = "a file of texts is too large"
                        raise UserError(what, where=str(path), why=why, hint=hint)
                    yield _copied(words)
        except OSError as error:
            why = error.strerror or str(error)
            raise path_error(error)(
                "cannot read a file of texts", where=str(path), why=why
            ) from error

    def _add(
        self, path: Path, number: int, line: bytes, strings: list[bytes], owners: array[int]
    ) -> None:
        """Add a line to the texts, unless it is blank."""
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if not line.strip():
            return
        try:
            found = [line.decode()] if path.suffix == ".txt" else [*_strings(line)]
        except (ValueError, RecursionError) as error:
            why = f"line {number}: {error}"
            raise UserError("cannot read a file of texts", where=str(path), why=why) from error
        strings += (each.encode() for each in found)
        owners.extend([len(self._lines)] * len(found))
        self._lines.append(number)


def _strings(line: bytes) -> Iterator[str]:
    """Yield the strings of a JSON value, at any depth."""
    rest = [msgspec.json.decode(line)]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, list | dict):
            rest += reversed([*value.values()] if isinstance(value, dict) else value)


def _copied(words: Words) -> Words:
    """Return a copy without the room that the arrays were made with."""
    data, starts, hashes, edges = words
    return Words(data.copy(), starts.copy(), hashes.copy(), edges)


def _joined(parts: Sequence[Words]) -> Words:
    """Return the words of several lists of texts as one."""
    first_bytes = offsets_from_lengths([len(part.data) for part in parts])
    first_words = offsets_from_lengths([len(part.hashes) for part in parts])
    starts = [part.starts[:-1] + first for part, first in zip(parts, first_bytes, strict=False)]
    edges = [part.edges[1:] + first for part, first in zip(parts, first_words, strict=False)]
    return Words(
        np.concatenate([part.data for part in parts] + [np.zeros(8, np.uint8)]),
        np.concatenate([*starts, first_bytes[-1:]]),
        np.concatenate([part.hashes for part in parts]),
        np.concatenate([np.zeros(1, np.int64), *edges]),
    )

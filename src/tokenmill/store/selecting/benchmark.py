"""Read the texts of a benchmark, and find the runs of words in them that other texts share.

    words ─WordTable─▶ numbers ─each N in a row─▶ runs, N numbers each ─WordTable─▶ numbers

Both tables compare what they number, so a run is shared only if all its words are equal.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterator
from itertools import pairwise

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.records import Int32Array, Int64Array, UInt8Array
from tokenmill.core.values import counted
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.words.compared import compared_words
from tokenmill.encode.words.table import WordTable
from tokenmill.store.selecting.lines import read_lines

KIND = "a file of texts"
MOST_RUN_WORDS = 1 << 27
"""Words of all runs together; each takes four bytes in the table of runs."""
RUN_WORDS_AT_ONCE = 1 << 22
SUFFIXES = (".txt", ".jsonl")
LookUp = Callable[[UInt8Array, Int64Array], Int32Array]
"""Takes runs as a `WordTable` does: the bytes of the numbers of their words, and their edges."""


class Benchmark:
    """Texts, one a line of a file, and the runs of `length` normalized words in them.

    A line of JSON is one text, and each string in it has words of its own: no run crosses strings.

    Raises:
        UserError: a file cannot be read, or no text has enough words.
    """

    def __init__(self, name: str, length: int) -> None:
        self.name, self.length = name, length
        self._lines = array("q")
        """The line of each text."""
        self._words, self._runs = WordTable(), WordTable()
        hint = f"write one text a line: {' or '.join(SUFFIXES)}"
        path = local_path(name, KIND)
        if path.suffix not in SUFFIXES:
            why = f"its name ends in {path.suffix or 'nothing'}"
            raise UserError(f"cannot read {KIND}", where=name, why=why, hint=hint)
        parts = list(self._read())
        if not self._lines:
            raise UserError(f"{KIND} is empty", where=name, hint=hint)
        pairs = np.unique(np.concatenate(parts), axis=0)
        self._texts = pairs[:, 1]
        """The texts of each run, one run after the other."""
        self._edges = np.searchsorted(pairs[:, 0], np.arange(len(self._runs) + 1))
        self.too_short = np.setdiff1d(np.arange(len(self)), self._texts)
        """Texts without a run: no string in them has enough words."""
        if not len(pairs):
            raise UserError(
                "no text is long enough to be found",
                where=name,
                why=f"each of {counted(len(self), 'text')} has fewer than {length} words",
                hint="ask for shorter runs: --words",
            )
        with path.open("rb") as file:
            self.digest = hashlib.file_digest(file, "sha256").hexdigest()

    def __len__(self) -> int:
        return len(self._lines)

    def label(self, text: int) -> str:
        """Return the file and the line of a text."""
        return f"{self.name}:{self._lines[text]}"

    def shared_runs(self, data: UInt8Array, offsets: Int64Array) -> tuple[Int64Array, Int32Array]:
        """Return the runs that texts in UTF-8 share with the benchmark.

        Returns:
            The index of the text and the number of the run, shape (n,) each, in order.
        """
        words, edges, words_before = compared_words(data, offsets)
        numbers = self._words.known_numbers(words, edges)
        owners, runs = self._runs_in(numbers, words_before, self._runs.known_numbers)
        return owners[runs >= 0], runs[runs >= 0]

    def texts_with(self, runs: Int32Array) -> dict[int, int]:
        """Return the texts with any of some runs, in the order of the runs, and a run of each."""
        found: dict[int, int] = {}
        for run in dict.fromkeys(runs.tolist()):
            for text in self._texts[self._edges[run] : self._edges[run + 1]].tolist():
                found.setdefault(text, run)
        return found

    def words_of(self, run: int) -> str:
        """Return the words of a run."""
        numbers, _ = self._runs.words(np.array([run]))
        data, edges = self._words.words(numbers.view(np.int32))
        return " ".join(data[a:b].tobytes().decode() for a, b in pairwise(edges.tolist()))

    def _runs_in(
        self, words: Int32Array, words_before: Int64Array, look_up: LookUp
    ) -> tuple[Int64Array, Int32Array]:
        """Look up the runs in texts; return the texts that they are in, and the answers.

        `words` are the numbers of words. A run with a word that has none, -1, is left out.
        """
        count = max(len(words) - self.length + 1, 0)
        owners = np.repeat(np.arange(len(words_before) - 1), np.diff(words_before))
        known = offsets_from_lengths(words >= 0)
        is_run = known[self.length :] - known[:count] == self.length
        is_run &= owners[self.length - 1 :] == owners[:count]
        starts = np.flatnonzero(is_run)
        at_once = max(RUN_WORDS_AT_ONCE // self.length, 1)
        parts = [np.empty(0, np.int32)]
        for first in range(0, len(starts), at_once):
            runs = words[starts[first : first + at_once, None] + np.arange(self.length)]
            edges = np.arange(len(runs) + 1) * runs.shape[1] * runs.itemsize
            parts.append(look_up(runs.reshape(-1).view(np.uint8), edges))
        return owners[starts], np.concatenate(parts)

    def _read(self) -> Iterator[Int64Array]:
        """Number the words and runs of the file; yield the runs and their texts, shape (n, 2)."""
        num_words = 0
        for first, lines in read_lines(self.name, KIND):
            strings: list[bytes] = []
            texts: list[int] = []
            for number, line in enumerate(lines, first):
                if line.strip():
                    found = self._strings(number, line)
                    strings += found
                    texts += [len(self._lines)] * len(found)
                    self._lines.append(number)
            data = np.frombuffer(b"".join(strings), np.uint8)
            edges = offsets_from_lengths([len(each) for each in strings])
            words, edges, words_before = compared_words(data, edges)
            num_words += len(edges) - 1
            if num_words * self.length > MOST_RUN_WORDS:
                most = MOST_RUN_WORDS // self.length
                raise UserError(
                    f"{KIND} is too large",
                    where=self.name,
                    why=f"it has more than {most:,} words",
                    hint="split it, and select with one part after the other",
                )
            numbers = self._words.numbers(words, edges)
            owners, runs = self._runs_in(numbers, words_before, self._runs.numbers)
            yield np.stack([runs, np.array(texts, np.int64)[owners]], axis=1)

    def _strings(self, number: int, line: bytes) -> list[bytes]:
        """Return the strings of a line."""
        try:
            return [line] if self.name.endswith(".txt") else [*_strings_in(line)]
        except (ValueError, RecursionError) as error:
            why = f"line {number}: {error}"
            raise UserError(f"cannot read {KIND}", where=self.name, why=why) from error


def _strings_in(line: bytes) -> Iterator[bytes]:
    """Yield the strings of a JSON value, at any depth."""
    rest = [msgspec.json.decode(line)]
    while rest:
        value = rest.pop()
        if isinstance(value, str):
            yield value.encode()
        elif isinstance(value, list | dict):
            rest += reversed([*value.values()] if isinstance(value, dict) else value)

"""Find documents that share a run of words with the texts of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, BinaryIO

import msgspec
import numpy as np

from tokenmill.core.records import BoolArray
from tokenmill.core.values import counted
from tokenmill.store.dataset import Dataset
from tokenmill.store.selecting.benchmark import Benchmark
from tokenmill.store.selecting.places import Place
from tokenmill.store.selecting.texts import Texts

Match = dict[str, Any]
"""What a line of `matches.jsonl` says about a document: how many `texts` it shares a run with; and
`matches`, the first of them, each as its `text` (file and line) and the `words` of a run."""
MOST_TEXTS = 10
"""Texts that are listed for a document, or named in a summary; all are counted."""


@dataclass(frozen=True, slots=True)
class Containment:
    """What documents share with the texts of a benchmark."""

    file: str
    words: int
    """The words of a run."""
    documents: int
    """Documents that share a run with any text."""
    texts: int
    """All texts of the benchmark."""
    found: int
    """Texts that share a run with any document."""
    most: dict[str, int]
    """The documents of those that have the most, by file and line of the text."""
    too_short: int
    """Texts with fewer words than a run, which cannot be found."""
    first_too_short: list[str]
    slow: bool
    """Whether the library of the tokenizer had to decode the documents, one at a time."""

    @property
    def told_too_short(self) -> str:
        """How many texts are too short, and which, in words."""
        more = ", ..." if self.too_short > len(self.first_too_short) else ""
        some = f"{self.too_short:,} of {counted(self.texts, 'text')} of {self.file}"
        why = f"cannot be found, with fewer than {counted(self.words, 'word')}"
        return f"{some} {why}: {', '.join(self.first_too_short)}{more}"


class Contained:
    """Keeps the documents that share a run of words with a text of a benchmark, or the others.

    Raises:
        UserError: the benchmark or the tokenizer of the datasets cannot be read.
    """

    def __init__(self, benchmark: Benchmark, datasets: Sequence[Dataset], *, keeps: bool) -> None:
        self._benchmark, self._keeps = benchmark, keeps
        self._texts = Texts(datasets[0])
        self._of_texts = np.zeros(len(benchmark), np.int64)
        """Documents that share a run with each text."""
        self._documents = 0
        self.file: BinaryIO | None = None
        """Where matches are written, a line for each document that has some."""
        run = f"{counted(benchmark.length, 'word')} in a row"
        of = f"{counted(len(benchmark), 'text')} in {benchmark.name}"
        self.question = (
            f"{'only' if keeps else 'without'} documents that share {run} with one of {of} "
            f"(SHA-256 {benchmark.digest[:12]})"
        )

    def mask(self, place: Place, asked: BoolArray) -> BoolArray:
        """Return which of the documents asked for to keep, shape (num_documents,)."""
        listed: dict[int, Match] = {}
        for documents, data, offsets in self._texts.blocks(place, asked):
            owners, runs = self._benchmark.shared_runs(data, offsets)
            edges = np.flatnonzero(np.diff(owners, prepend=-1, append=-1))
            for a, b in pairwise(edges.tolist()):
                shared = self._benchmark.texts_with(runs[a:b])
                self._of_texts[list(shared)] += 1
                matches = [
                    {"text": self._benchmark.label(text), "words": self._benchmark.words_of(run)}
                    for text, run in islice(shared.items(), MOST_TEXTS)
                ]
                listed[int(documents[owners[a]])] = {"texts": len(shared), "matches": matches}
        self._documents += len(listed)
        if listed and self.file is not None:
            self._write(self.file, place, listed)
        found = np.zeros(len(asked), np.bool_)
        found[list(listed)] = True
        return found if self._keeps else ~found

    def _write(self, file: BinaryIO, place: Place, listed: Mapping[int, Match]) -> None:
        """Write a line for each document that shares words, by its index in the shard."""
        table = place.shard.documents(["source", "position", "id"]).take(list(listed))
        origins = ({"dataset": place.dataset_number, **row} for row in table.to_pylist())
        lines = [
            {"document": place.first_document + document, **origin, **match}
            for origin, (document, match) in zip(origins, listed.items(), strict=True)
        ]
        file.write(msgspec.json.Encoder().encode_lines(lines))

    def finish(self) -> None:
        """Nothing is left to do: it is fine if no document shares words."""

    def report(self) -> Containment:
        """Return what was found."""
        benchmark, documents = self._benchmark, self._of_texts
        order = np.argsort(-documents, kind="stable")[:MOST_TEXTS].tolist()
        return Containment(
            file=benchmark.name,
            words=benchmark.length,
            documents=self._documents,
            texts=len(benchmark),
            found=int(np.count_nonzero(documents)),
            most={benchmark.label(text): int(documents[text]) for text in order if documents[text]},
            too_short=len(benchmark.too_short),
            first_too_short=[benchmark.label(n) for n in benchmark.too_short[:MOST_TEXTS].tolist()],
            slow=self._texts.is_slow,
        )

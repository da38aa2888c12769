"""Find documents that share a run of words with the texts of a benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO

import msgspec
import numpy as np

from tokenmill.core.records import BoolArray, Int64Array
from tokenmill.core.values import counted
from tokenmill.kernels.shared_runs import Sightings, Words, shared_runs
from tokenmill.store.dataset import Dataset
from tokenmill.store.selecting.benchmark import Benchmark
from tokenmill.store.selecting.places import Place
from tokenmill.store.selecting.texts import Texts

MOST_TEXTS, MOST_SHOWN_WORDS = 10, 50
"""Texts that are listed for a document, and the words of each; all are counted."""
MOST_NAMED, NAMED_WORDS = 10, 12
"""Texts that are named in a summary, and the first words of each."""


@dataclass(frozen=True, slots=True)
class FoundText:
    """A text of a benchmark that documents share words with."""

    text: str
    """Its file and line."""
    documents: int
    begins: str
    """Its first words, normalized."""


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
    most: list[FoundText]
    """Those with the most documents."""
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


class Match(msgspec.Struct, frozen=True):
    """Words that a document shares with a text."""

    text: str
    """File and line of the text."""
    num_words: int
    """How many words they share from the first shared run on, until one differs."""
    words: str
    """The first of these words, normalized."""


class MatchedDocument(msgspec.Struct, frozen=True):
    """A line of `matches.jsonl`."""

    document: int
    """Its number in its dataset."""
    dataset: int
    source: str
    position: int
    id: str | None
    texts: int
    """How many texts it shares a run with."""
    matches: list[Match]
    """The first of them."""


class Contained:
    """Keeps the documents that share a run of words with a text of a benchmark, or the others.

    Raises:
        UserError: the benchmark or the tokenizer of the datasets cannot be read.
    """

    def __init__(self, benchmark: Benchmark, datasets: Sequence[Dataset], *, keeps: bool) -> None:
        self._benchmark, self._keeps = benchmark, keeps
        self._texts = Texts(datasets[0])
        num_words, num_texts = len(benchmark.runs.texts), len(benchmark)
        self._sightings = Sightings(
            np.full(num_words, -1), np.full(num_texts, -1), np.zeros(num_texts, np.int64)
        )
        self._documents = 0
        self.file: BinaryIO | None = None
        """Where matches are written, a line for each document that has some."""
        run = f"{counted(benchmark.length, 'word')} in a row"
        of = f"{counted(num_texts, 'text')} in {benchmark.name}"
        self.question = (
            f"{'only' if keeps else 'without'} documents that share {run} with one of {of} "
            f"(SHA-256 {benchmark.digest[:12]})"
        )

    def mask(self, place: Place, asked: BoolArray) -> BoolArray:
        """Return which of the documents asked for to keep, shape (num_documents,)."""
        counts = np.zeros(len(asked), np.int64)
        listed: dict[int, list[Match]] = {}
        for documents, data, offsets in self._texts.blocks(place, asked):
            words, codes = self._benchmark.words_of(data, offsets)
            numbers = documents + place.documents.start
            found, rows = shared_runs(
                words, codes, numbers, self._benchmark.length, self._benchmark.runs,
                self._sightings, MOST_TEXTS,
            )  # fmt: skip
            np.add.at(counts, documents, found)
            for row in rows.tolist():
                matches = listed.setdefault(int(documents[row[0]]), [])
                if len(matches) < MOST_TEXTS:
                    matches.append(self._match(words, *row))
        self._write(place, counts, listed)
        return counts > 0 if self._keeps else counts == 0

    def _match(self, words: Words, document: int, word: int, place: int) -> Match:
        shared = self._benchmark.shared_words(place, words, word, document).split(b" ")
        text = self._benchmark.label(int(self._benchmark.runs.texts[place]))
        return Match(text, len(shared), b" ".join(shared[:MOST_SHOWN_WORDS]).decode())

    def _write(self, place: Place, counts: Int64Array, listed: dict[int, list[Match]]) -> None:
        documents = np.flatnonzero(counts)
        self._documents += len(documents)
        if not len(documents) or self.file is None:
            return
        table = place.shard.documents(["source", "position", "id"]).take(documents)
        lines = [
            MatchedDocument(
                document=place.first_document + document,
                dataset=place.dataset_number,
                **row,
                texts=int(counts[document]),
                matches=listed[document],
            )
            for document, row in zip(documents.tolist(), table.to_pylist(), strict=True)
        ]
        self.file.write(msgspec.json.Encoder().encode_lines(lines))

    def finish(self) -> None:
        """Nothing is left to do: it is fine if no document shares words."""

    def report(self) -> Containment:
        """Return what was found."""
        benchmark, documents = self._benchmark, self._sightings.documents
        order = np.argsort(-documents, kind="stable")[:MOST_NAMED].tolist()
        return Containment(
            file=benchmark.name,
            words=benchmark.length,
            documents=self._documents,
            texts=len(benchmark),
            found=int(np.count_nonzero(documents)),
            most=[
                FoundText(
                    benchmark.label(text), int(documents[text]),
                    benchmark.beginning(text, NAMED_WORDS),
                )
                for text in order
                if documents[text]
            ],
            too_short=len(benchmark.too_short),
            first_too_short=[benchmark.label(n) for n in benchmark.too_short[:MOST_NAMED].tolist()],
            slow=self._texts.is_slow,
        )  # fmt: skip

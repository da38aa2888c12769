"""Count the words of documents in one table for each group, and write the tables as sorted runs.

A document without text counts as empty. A document with text but without words does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from tokenmill.core.errors import DataError
from tokenmill.core.records import DocumentBatch
from tokenmill.encode.engine import Encoder, Engine
from tokenmill.encode.probe import Step, steps_before_model
from tokenmill.encode.split_file import as_tokenizer_file
from tokenmill.encode.splitters import LIBRARY, load_splitter
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.table import WordTable
from tokenmill.run.job import Count, Setup
from tokenmill.run.units.attempt import UnitAttempt, groups_of
from tokenmill.store.counts.runs import write_run
from tokenmill.store.digests import file_digest
from tokenmill.store.files import storage_errors
from tokenmill.store.manifest import Counts, FileEntry
from tokenmill.store.shard import RejectedWriter

LARGEST_HASH = 2**32 - 1
"""The largest hash of a word. Splitters return hashes of words in the exam."""
MAX_GROUPS = 4_096
RUN_PREFIX = "words-"
"""The prefix of the parts of a unit that are sorted runs of words. A number follows."""
MAX_GROUP_CHARACTERS = 1_000
GROUP_ROOM = 1 << 8
"""The initial capacity of a group's table, in words. There may be thousands of groups."""


class CountRunner:
    """Holds the splitter. A TaskRunner."""

    def __init__(self, setup: Setup, task: Count) -> None:
        self.setup, self.task = setup, task
        self.splitter = load_splitter(task.split, setup.engine, setup.resources.cache_bytes)
        self.encoder = Encoder(self.splitter, LARGEST_HASH)

    @cached_property
    def reference(self) -> Engine:
        """The library's own splitter."""
        return load_splitter(self.task.split, LIBRARY, 0)

    def steps(self) -> list[Step]:
        """Return the normalizer and the pre-tokenizer."""
        return steps_before_model(as_tokenizer_file(self.task.split))

    def begin(self, attempt: UnitAttempt) -> CountedUnit:
        """Start with empty tables."""
        return CountedUnit(self, attempt)


class CountedUnit:
    """The words of one unit. A UnitTask."""

    def __init__(self, runner: CountRunner, attempt: UnitAttempt) -> None:
        self._runner, self._task, self._attempt = runner, runner.task, attempt
        self._tables: dict[str, WordTable] = {}
        self._runs: list[FileEntry] = []
        self._rejected_path = attempt.path("jsonl")
        with storage_errors("write rejected records", self._rejected_path):
            self._rejected = RejectedWriter(self._rejected_path, attempt.source_names)

    def add(self, group: Sequence[DocumentBatch]) -> None:
        """Count the words of some batches of documents."""
        attempt = self._attempt
        wanted = self._within_limit(group)
        with attempt.timing("split"):
            words = attempt.guarded(
                wanted, lambda: self._count(wanted), lambda: self._count_carefully(wanted)
            )
        for batch, num_words in zip(wanted, words, strict=True):
            self._sample_for_audit(batch)
            self._book(batch, num_words)
            self._rejected.add(batch.rejected)
        if (
            sum(table.num_bytes for table in self._tables.values())
            > self._runner.setup.resources.table_bytes
        ):
            with attempt.timing("write"):
                self._spill()

    def close(self) -> list[FileEntry]:
        """Write the tables, and finish the files."""
        self._spill()
        with storage_errors("write rejected records", self._rejected_path):
            self._rejected.close()
            size = self._rejected_path.stat().st_size
            if not size:
                self._rejected_path.unlink()
                return self._runs
        entry = FileEntry(name="jsonl", bytes=size, xxh3_128=self._rejected.digest)
        return [*self._runs, entry]

    def discard(self) -> None:
        """Remove what was written."""
        with contextlib.suppress(OSError):
            self._rejected.close()
        self._attempt.remove_files()

    def _within_limit(self, group: Sequence[DocumentBatch]) -> list[DocumentBatch]:
        """Return the documents up to the limit, in order."""
        limit = self._attempt.assignment.limit.documents
        if limit is None:
            return list(group)
        room = limit - self._attempt.tally.documents
        wanted: list[DocumentBatch] = []
        for batch in group:
            within = np.cumsum([bool(text) for text in batch.texts]) <= room
            if len(within) and not within.all():
                self._attempt.limited = True
                wanted.append(batch.head(int(np.argmin(within))))
                break
            room -= sum(map(bool, batch.texts))
            wanted.append(batch)
        return wanted

    def _count(self, group: Sequence[DocumentBatch]) -> list[int]:
        """Count all words. Returns the number of words in each batch."""
        splitter = self._runner.splitter
        if len(group) == 1 and not self._task.column:
            name = self._task.groups[group[0].source] if self._task.groups else ""
            return [splitter.count(group[0].texts, self._table(name))]
        words = splitter.split([text for batch in group for text in batch.texts])
        found, first = [], 0
        for batch in group:
            for name, start, stop in self._stretches(batch):
                edges = words.edges[
                    words.words_before[first + start] : words.words_before[first + stop] + 1
                ]
                self._table(name).add(words.data, edges)
            last = first + len(batch.texts)
            found.append(int(words.words_before[last] - words.words_before[first]))
            first = last
        return found

    def _count_carefully(self, group: Sequence[DocumentBatch]) -> list[int]:
        """Count the words of each document alone, after announcing it."""
        attempt, splitter = self._attempt, self._runner.splitter
        found = []
        for batch in group:
            names = iter(self._names(batch))

            def count(text: str, names: Iterator[str] = names) -> int:
                return splitter.count([text], self._table(next(names)))

            found.append(sum(attempt.each(batch, splitter.name, count)))
        return found

    def _names(self, batch: DocumentBatch) -> list[str]:
        """Return the group of each document.

        Raises:
            DataError: a value is too long.
        """
        names = groups_of(self._task, batch)
        if self._task.column and any(len(name) > MAX_GROUP_CHARACTERS for name in names):
            index = next(i for i, name in enumerate(names) if len(name) > MAX_GROUP_CHARACTERS)
            raise DataError(
                f"a value of {self._task.column!r} is too long to be a group name",
                where=f"{self._attempt.sources[batch.source].name}, position "
                f"{batch.positions[index]}",
                why=f"it has {len(names[index]):,} characters; at most {MAX_GROUP_CHARACTERS:,} "
                "are allowed",
                hint="group by a column with few values, such as a language or a domain",
            )
        return names

    def _stretches(self, batch: DocumentBatch) -> Iterator[tuple[str, int, int]]:
        """Yield (group, start, stop) for each run of documents [start, stop) of the same group."""
        names, start = self._names(batch), 0
        for place in range(1, len(names) + 1):
            if place == len(names) or names[place] != names[start]:
                yield names[start], start, place
                start = place

    def _table(self, name: str) -> WordTable:
        if name not in self._tables:
            if len(self._tables) == MAX_GROUPS:
                raise too_many_groups(self._task.column)
            alone = not (self._task.column or self._task.groups)
            self._tables[name] = WordTable() if alone else WordTable(GROUP_ROOM)
        return self._tables[name]

    def _sample_for_audit(self, batch: DocumentBatch) -> None:
        attempt, encoder = self._attempt, self._runner.encoder
        if self._runner.setup.engine == LIBRARY:
            return  # the library is the reference itself
        for text in attempt.drawn(batch):
            attempt.audited.texts.append(text)
            attempt.audited.ids.append(encoder.encode([text]).ids.tolist())

    def _book(self, batch: DocumentBatch, num_words: int) -> None:
        written = np.array([bool(text) for text in batch.texts], np.bool_)
        num_bytes = int(batch.record_bytes[written].sum())
        self._attempt.book(batch, int(written.sum()), num_bytes, Counts(tokens=num_words))

    def _spill(self) -> None:
        """Write the tables as one sorted run, and clear them."""
        words: dict[str, WordCounts] = {}
        for name in sorted(self._tables):
            if found := self._tables.pop(name).take():
                words[name] = found
        if not words:
            return
        part = f"{RUN_PREFIX}{len(self._runs)}"
        path = self._attempt.path(part)
        with storage_errors("write word counts", path):
            write_run(path, words)
            size, digest = path.stat().st_size, file_digest(path)
        self._runs.append(FileEntry(name=part, bytes=size, xxh3_128=digest))


def too_many_groups(what: str) -> DataError:
    """Return the error for a column with too many values."""
    return DataError(
        f"there are more than {MAX_GROUPS:,} groups",
        why=f"{what!r} has too many values",
        hint="group by a column with few values, such as a language or a domain",
    )

"""The text to measure tokenizers on: files, the sources of a dataset, or counted words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.records import Advance, TokenBatch
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.measure.measurer import token_table
from tokenmill.encode.measure.tallies import COLUMNS, Tally
from tokenmill.encode.model_alone import ModelAlone
from tokenmill.encode.split_file import canonical_steps
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import split_of
from tokenmill.read.fields import Fields
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import check_fields, fetch_sources
from tokenmill.reports.comparison import find_kept_sources, read_options
from tokenmill.reports.tokenizers.subject import Subject
from tokenmill.run.recipe.options import INPUT_GROUPS, ReadOptions, grouped_reading
from tokenmill.run.tasks.count import list_with_groups
from tokenmill.store.counts.folder import CountsFolder, is_counts_folder
from tokenmill.store.dataset import Dataset, is_dataset


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents to read, and how they are grouped."""

    sources: list[Source]
    fields: Fields
    by: str | None
    """The column whose values are the groups, or `input`; None: all documents are one group."""
    origin: str
    notes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """The group of each source; empty if groups are something else."""

    @property
    def column(self) -> str:
        """The column whose values are the groups; "" if groups do not come from the documents."""
        return self.fields.keep[0] if self.fields.keep else ""


def is_counts(inputs: Sequence[str]) -> bool:
    """Whether the inputs are a folder of counts."""
    return len(inputs) == 1 and Path(inputs[0]).is_dir() and is_counts_folder(inputs[0])


def open_corpus(
    inputs: Sequence[str], read: ReadOptions, by: str | None, advance: Advance
) -> Corpus:
    """The documents of files, or of the sources that a dataset was built from.

    A dataset's own options of reading count, and `read` only adds the column.

    Raises:
        UserError: an input or a column does not exist.
    """
    origin = ", ".join(inputs)
    folder = local_path(inputs[0], "the dataset") if len(inputs) == 1 else None
    if folder is not None and is_dataset(folder):
        dataset = Dataset(folder)
        stored = read_options(dataset)
        sources = find_kept_sources(dataset, advance)
        notes = _notes_of(stored, len(dataset.manifest.sources) - len(sources))
        read, names = stored, [source.name for source in sources]
    else:
        notes = ()
        access = Access(
            "stream" if read.streaming else "download",
            listener=lambda done: advance("download", done.done_bytes, done.total_bytes),
        )
        listed, names = list_with_groups(inputs, read.per_input, access)
        sources = fetch_sources(listed, access)
    fields = grouped_reading(read, by).fields
    check_fields(sources, fields)
    sources = [replace(source, index=index) for index, source in enumerate(sources)]
    if not sources:
        raise UserError("no documents to measure", where=origin)
    groups = tuple(names) if by == INPUT_GROUPS else ()
    return Corpus(sources, fields, by and by.removesuffix("?"), origin, notes, groups)


def _notes_of(read: ReadOptions, num_quarantined: int) -> tuple[str, ...]:
    notes = []
    if read.max_documents is not None or read.max_tokens is not None:
        notes.append("the dataset stopped at a limit; all documents of its sources are measured")
    if num_quarantined:
        notes.append(f"{num_quarantined:,} damaged sources of the dataset are left out")
    return tuple(notes)


WORDS_OF_COUNTS = "words of the counts"
"""The rule that split these words: the pre-tokenizer's own."""
CHUNK_WORDS = 1 << 14


def counted_corpus(counts: CountsFolder, origin: str, by: str | None) -> Corpus:
    """What a report says of counts; there is nothing to read.

    Raises:
        UserError: they are grouped in another way.
    """
    grouped = counts.manifest.by or None
    if by is not None and by.removesuffix("?") != grouped:
        why = f"they are grouped by {grouped}" if grouped else "they are not grouped"
        hint = f"tokenmill tokenizer count INPUTS --by {by} --out OTHER_COUNTS"
        raise UserError(f"the counts cannot be grouped by {by!r}", where=origin, why=why, hint=hint)
    notes = [
        "counts hold no documents: there are no intervals, no rows, and no Gini coefficient",
        "words are those of the counts, and bytes those of words, after the normalizer",
    ]
    if counts.left_out.words:
        notes.append(
            f"{counts.left_out.words:,} rare words with {counts.left_out.occurrences:,} "
            "occurrences were left out of the counts"
        )
    return Corpus([], Fields(), grouped, origin, tuple(notes))


def measure_counts(subject: Subject, counts: CountsFolder, advance: Advance) -> Tally:
    """Measure a tokenizer on all counted words.

    Raises:
        UserError: the words were cut in another way than the tokenizer cuts.
    """
    model = ModelAlone(_comparable(subject, counts), subject.name)
    table = token_table(subject.tokens or {}, subject.reference.largest_id)
    tally = Tally.empty(subject.reference.largest_id, ())
    done, total = 0, sum(len(words) for words in counts.groups.values())
    for name, words in counts.groups.items():
        for start in range(0, len(words), CHUNK_WORDS):
            chunk = range(start, min(start + CHUNK_WORDS, len(words)))
            part = words.select(np.arange(chunk.start, chunk.stop))
            tokens = model.segment(part)
            _add(tally, name, part, tokens, table.is_part, subject.reference.unk_id)
            done += len(chunk)
            advance("words", done, total)
    return tally


def _add(
    tally: Tally,
    group: str,
    words: WordCounts,
    tokens: TokenBatch,
    is_part: np.ndarray[Any, np.dtype[np.bool_]],
    unk_id: int | None,
) -> None:
    lengths, flat, times = tokens.lengths, tokens.ids.astype(np.int64), words.counts
    of_token = np.repeat(times, lengths)
    np.add.at(tally.histogram, flat, of_token)
    sums = dict.fromkeys(COLUMNS, 0)
    sums |= {
        "bytes": words.num_bytes,
        "characters": int(np.diff(words.character_offsets()) @ times),
        "words": int(times.sum()),
        "tokens": int(lengths @ times),
        "aligned_words": int(times.sum()),
        "continued_words": int(times[lengths > 1].sum()),
        "unknown_tokens": int(of_token[flat == unk_id].sum()) if unk_id is not None else 0,
        "part_tokens": int(of_token[is_part[flat]].sum()),
    }
    tally.add_totals(group, np.array([sums[name] for name in COLUMNS], np.int64), flat)


def _comparable(subject: Subject, counts: CountsFolder) -> dict[str, Any]:
    """The tokenizer.json, if its words are those of the counts."""
    data = KINDS[subject.file.kind].json_of(subject.file, False)
    hint = "report on the texts themselves, or count them with the split of this tokenizer"
    if data is None:
        why = f"a {subject.file.kind} tokenizer has no steps that could be compared with the counts"
        raise UserError("no report on counts", where=subject.name, why=why, hint=hint)
    document = msgspec.json.decode(data, type=dict[str, Any])
    if canonical_steps(split_of(document)) != canonical_steps(counts.split):
        why = f"they were cut by {counts.split.name or 'the split of another tokenizer'}"
        raise UserError(
            "the words were cut in another way than the tokenizer cuts",
            where=subject.name,
            why=why,
            hint=hint,
        )
    return document

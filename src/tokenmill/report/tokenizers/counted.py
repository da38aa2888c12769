"""Measure tokenizers on counted words: exact totals without the documents."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance, TokenBatch
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.measure.tallies import COLUMNS, Tally
from tokenmill.encode.model_alone import ModelAlone
from tokenmill.encode.split_file import canonical_steps
from tokenmill.encode.token_bytes import token_table
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import split_of
from tokenmill.read.fields import Fields
from tokenmill.report.tokenizers.corpus import Corpus
from tokenmill.report.tokenizers.subject import Subject
from tokenmill.store.counts.folder import CountsFolder

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

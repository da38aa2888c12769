"""Extend a BPE: learn additional merges on a corpus.

Each word is segmented by the old tokenizer; then the most frequent pair is merged repeatedly, as in
training (continued BPE; Purason et al., arXiv 2512.03989). Old ids and merges do not change, and
new merges come after the old ones. So

- a text is segmented as before, and then some neighbours are joined: there are no new boundaries;
- every new token is reachable, because its text is segmented into the tokens it was merged from;
- texts without a pair of a new merge do not change.

Tokens added with `add_tokens` have none of these properties, because they are matched before texts
are split into words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tokenmill.core.errors import InternalError, UserError
from tokenmill.core.records import Advance, BoolArray, Int64Array, TokenBatch
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.model_alone import ModelAlone
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.encode.tokenizer_json import Json, Pair, is_version, merge_pair
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.learning import continue_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions
from tokenmill.vocabulary.bpe.symbols import SegmentedWords, Symbols
from tokenmill.vocabulary.changing.base import (
    Base,
    Changed,
    file_of,
    num_tokens,
    segmented,
)


class _Learnt(NamedTuple):
    """New merges in order, and their results."""

    pairs: list[Pair]
    rows: dict[int, list[int]]
    """Old ids by the id of a new or revived token."""
    tokens: dict[str, int]
    """New tokens."""
    revived: list[str]
    saved: int


def extend(
    base: Base,
    words: WordCounts,
    add: int,
    min_frequency: int = 2,
    advance: Advance | None = None,
) -> Changed:
    """Learn up to `add` new tokens, from pairs that occur at least `min_frequency` times.

    Raises:
        UserError: no pair occurs that often.
    """
    before = segmented(ModelAlone(base.document, base.origin), words)
    learnable = ~holding(words, {token.encode() for token in base.opaque})
    seeds = _seeds(base, before, words, learnable)
    options = MergeOptions(vocabulary_size=base.num_ids + add, min_frequency=min_frequency)
    learnt = _learn(base, seeds, options, advance)
    if not learnt.pairs:
        why = f"no pair of adjacent tokens occurs {min_frequency} times inside words"
        raise UserError("found no tokens to add", where=base.origin, why=why)
    document = _extended(base, learnt)
    model = ModelAlone(document, base.origin)
    after = segmented(model, words)
    _check_words(base, learnt, (before, after), words, learnable)
    _check_tokens(base, document, learnt, model)
    return Changed(
        document,
        list(learnt.tokens),
        new_ids=range(base.num_ids),
        num_unchanged=base.num_ids,
        rows=[learnt.rows[token_id] for token_id in learnt.tokens.values()],
        figures={
            "ids_before": base.num_ids,
            "ids_after": base.num_ids + len(learnt.tokens),
            "added": len(learnt.tokens),
            "revived": len(learnt.revived),  # old tokens that only a new merge produces
            "tokens_before": num_tokens(before, words),
            "tokens_after": num_tokens(after, words),
            "words_left_out": int((~learnable).sum()),  # they hold the string of an added token
        },
    )


def holding(words: WordCounts, texts: set[bytes]) -> BoolArray:
    """Return whether each word contains any of the texts, shape (num_words,)."""
    found = np.zeros(len(words), np.bool_)
    data, offsets = words.data.tobytes(), words.offsets
    for text in sorted(texts):
        place = data.find(text)
        while place >= 0:
            word = int(np.searchsorted(offsets, place, side="right")) - 1
            inside = place + len(text) <= offsets[word + 1]
            found[word] |= inside
            place = data.find(text, int(offsets[word + 1]) if inside else place + 1)
    return found


def _learn(
    base: Base, seeds: SegmentedWords, options: MergeOptions, advance: Advance | None
) -> _Learnt:
    """Learn the merges that produce new tokens."""
    num_ids = base.num_ids
    by_id = {token_id: token for token, token_id in base.tokens.items()}
    # An id without a token gets a string that no merge can produce.
    strings = tuple(by_id.get(i, f"\0{i}") for i in range(num_ids))
    lengths = np.array([len(string) for string in strings], np.int32)
    symbols = Symbols(strings, tuple(string.encode() for string in strings), lengths)
    merges = continue_merges(seeds, symbols, options, advance)
    spelled = merges.strings()
    rows: dict[int, list[int]] = {}
    for (left, right), made in zip(merges.pairs.tolist(), merges.ids.tolist(), strict=True):
        rows[made] = rows.get(left, [left]) + rows.get(right, [right])
    return _Learnt(
        [(spelled[left], spelled[right]) for left, right in merges.pairs.tolist()],
        rows,
        {spelled[made]: made for made in rows if made >= num_ids},
        [spelled[made] for made in rows if made < num_ids],
        int(merges.masses.sum()),
    )


def _seeds(
    base: Base, before: TokenBatch, words: WordCounts, learnable: BoolArray
) -> SegmentedWords:
    """Return the words to learn from, split at tokens that never merge, without single tokens."""
    opaque = np.array(sorted(base.tokens[token] for token in base.opaque), np.int64)
    never = np.isin(before.ids, opaque)
    begins = np.zeros(len(before.ids) + 1, np.bool_)
    begins[before.offsets] = True
    begins[:-1] |= never
    begins[1:] |= never
    edges = np.flatnonzero(begins)
    word = np.searchsorted(before.offsets, edges[:-1], side="right") - 1
    kept = learnable[word] & (np.diff(edges) > 1)
    tokens = np.repeat(kept, np.diff(edges))
    return SegmentedWords(
        before.ids[tokens].astype(np.int32),
        offsets_from_lengths(np.diff(edges)[kept]),
        words.counts[word[kept]],
    )


def _extended(base: Base, learnt: _Learnt) -> Json:
    """Return the tokenizer.json with new tokens and merges after the old ones."""
    model = base.document["model"]
    merges = list(model["merges"])
    has_spaces = any(" " in side for pair in learnt.pairs for side in pair)
    if merges and isinstance(merges[0], str) and not has_spaces:
        merges += [" ".join(pair) for pair in learnt.pairs]
    else:
        merges = [list(merge_pair(merge)) for merge in merges if not is_version(merge)]
        merges += [list(pair) for pair in learnt.pairs]
    vocab = {**model["vocab"], **learnt.tokens}
    return {**base.document, "model": {**model, "vocab": vocab, "merges": merges}}


def _check_words(
    base: Base,
    learnt: _Learnt,
    batches: tuple[TokenBatch, TokenBatch],
    words: WordCounts,
    learnable: BoolArray,
) -> None:
    """Check the words of the new tokenizer against the predictions."""
    before, after = batches
    expanded = [
        _expanded(batch, learnt.rows, base.num_ids + len(learnt.tokens)) for batch in batches
    ]
    if not all(map(np.array_equal, *expanded)):
        raise InternalError("a word has a token boundary that it had not before", where=base.origin)
    saved = int((before.lengths - after.lengths)[learnable] @ words.counts[learnable])
    if saved != learnt.saved:
        why = f"it saves {saved:,} tokens instead of {learnt.saved:,}"
        raise InternalError(
            "the extended tokenizer does not save as many tokens as predicted",
            where=base.origin,
            why=why,
        )


def _check_tokens(base: Base, document: Json, learnt: _Learnt, model: ModelAlone) -> None:
    """Check the new tokens against the predictions."""
    made = [*learnt.tokens, *learnt.revived]
    ids = document["model"]["vocab"]
    alone = model.encode(made)
    if alone.ids.tolist() != [ids[token] for token in made]:
        raise InternalError("the text of a new token does not encode to it", where=base.origin)
    reference = HuggingFaceReference(file_of(document, base.origin), control_tokens=False)
    if any(reference.token_id(token) != ids[token] for token in base.added):
        raise InternalError("an added token has another id", where=base.origin)


def _expanded(
    batch: TokenBatch, rows: dict[int, list[int]], num_ids: int
) -> tuple[Int64Array, Int64Array]:
    """Return ids and offsets with every new token replaced by the old tokens it consists of."""
    parts = [rows.get(i, [i]) for i in range(num_ids)]
    lengths = np.array([len(part) for part in parts], np.int64)
    flat = np.array([old for part in parts for old in part], np.int64)
    starts = offsets_from_lengths(lengths)
    taken = lengths[batch.ids]
    ends = offsets_from_lengths(taken)
    ids = flat[np.arange(ends[-1]) + np.repeat(starts[batch.ids] - ends[:-1], taken)]
    return ids, ends[batch.offsets]

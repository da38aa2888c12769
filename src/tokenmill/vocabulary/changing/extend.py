"""Extending: a BPE learns more merges on a corpus, behind those that it has.

Each word is cut by the tokenizer as it is; from there on the most frequent pair is merged again and
again, as in training (continued BPE; Purason et al., arXiv 2512.03989). Old ids and merges stay as
they are, and new merges come after them, so

- a text is cut as before, and then some neighbours are joined: no new boundary arises;
- every new token is reached, since its own text is cut into the tokens that were joined;
- nothing happens to texts that hold no pair of a new merge.

Tokens that are put in beside the model (`add_tokens`) have none of that: they are cut out of texts
before words are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenmill.boundaries import offsets_from_lengths
from tokenmill.encode.model_alone import ModelAlone, Pair, is_version, merge_pair
from tokenmill.encode.references.huggingface import HuggingFaceReference
from tokenmill.errors import InternalError, UserError
from tokenmill.records import Advance, Int64Array, TokenBatch
from tokenmill.vocabulary.bpe.learning import continue_merges
from tokenmill.vocabulary.bpe.merges import MergeOptions
from tokenmill.vocabulary.bpe.symbols import SegmentedWords, Symbols
from tokenmill.vocabulary.changing.base import (
    Base,
    Json,
    file_of,
    num_tokens,
    segmented,
)
from tokenmill.words.counts import WordCounts

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Extended:
    """A tokenizer with more tokens, and what they bring."""

    document: Json
    """The new tokenizer.json."""
    tokens: list[str]
    """New tokens in the order of their ids."""
    rows: list[list[int]]
    """The old ids that each new token consists of."""
    revived: list[str]
    """Old tokens that no merge produced before, and that a new merge now produces."""
    tokens_before: int
    """Tokens of the corpus."""
    tokens_after: int
    words_left_out: int
    """Unique words that were skipped because they contain the string of an added token."""


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
) -> Extended:
    """Learn up to `add` new tokens, from pairs that occur at least `min_frequency` times.

    Raises:
        UserError: no pair occurs that often.
    """
    before = segmented(ModelAlone(base.document, base.origin), words)
    learnable = ~holding(words, base.added_texts())
    seeds = _seeds(base, before, words, learnable)
    options = MergeOptions(vocabulary_size=base.num_ids + add, min_frequency=min_frequency)
    learnt = _learn(base, seeds, options, advance)
    if not learnt.pairs:
        why = f"no two neighbouring tokens occur {min_frequency} times inside words"
        raise UserError("found nothing to add to the tokenizer", where=base.origin, why=why)
    document = _extended(base, learnt)
    model = ModelAlone(document, base.origin)
    after = segmented(model, words)
    _check_words(base, learnt, (before, after), words, learnable)
    _check_tokens(base, document, learnt, model)
    return Extended(
        document,
        list(learnt.tokens),
        [learnt.rows[token_id] for token_id in learnt.tokens.values()],
        learnt.revived,
        num_tokens(before, words),
        num_tokens(after, words),
        int((~learnable).sum()),
    )


def holding(words: WordCounts, texts: set[bytes]) -> BoolArray:
    """Shape (num_words,): whether any of the texts is in a word."""
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
    """The merges that produce new tokens."""
    num_ids = base.num_ids
    by_id = {token_id: token for token, token_id in base.tokens.items()}
    # An id without a token gets a string that no merge can make.
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
    """Words of at least two tokens to learn from, cut further around tokens that never merge."""
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
    """The tokenizer.json with new tokens and merges behind the old ones."""
    model = base.document["model"]
    merges = list(model["merges"])
    if merges and isinstance(merges[0], str) and not _has_spaces(learnt.pairs):
        merges += [" ".join(pair) for pair in learnt.pairs]
    else:
        merges = [list(merge_pair(merge)) for merge in merges if not is_version(merge)]
        merges += [list(pair) for pair in learnt.pairs]
    vocab = {**model["vocab"], **learnt.tokens}
    return {**base.document, "model": {**model, "vocab": vocab, "merges": merges}}


def _has_spaces(pairs: list[Pair]) -> bool:
    return any(" " in side for pair in pairs for side in pair)


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
        raise InternalError("a word is split where it was not split before", where=base.origin)
    saved = int((before.lengths - after.lengths)[learnable] @ words.counts[learnable])
    if saved != learnt.saved:
        why = f"it saves {saved:,} tokens, and {learnt.saved:,} were predicted"
        raise InternalError(
            "the extended tokenizer is not as predicted", where=base.origin, why=why
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
    """Ids and offsets with every new token replaced by the old tokens it consists of."""
    parts = [rows.get(i, [i]) for i in range(num_ids)]
    lengths = np.array([len(part) for part in parts], np.int64)
    flat = np.array([old for part in parts for old in part], np.int64)
    starts = offsets_from_lengths(lengths)
    taken = lengths[batch.ids]
    ends = offsets_from_lengths(taken)
    ids = flat[np.arange(ends[-1]) + np.repeat(starts[batch.ids] - ends[:-1], taken)]
    return ids, ends[batch.offsets]

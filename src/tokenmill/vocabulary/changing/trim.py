"""Remove the tokens of a BPE that a corpus needs least; all others stay reachable.

Only **leaves** are removed: tokens that no remaining merge uses. The leaf with the lowest frequency
is removed first; of equal ones, the one with the largest id. Its frequency is added to its
**parts**, the tokens that encode its text without it; they may then become leaves. Added tokens,
bytes and single characters always stay. For why to remove leaves, see P. Purason et al.,
arXiv 2512.03989.

The remaining merges and their order do not change. So

- all remaining tokens stay reachable, because the merges that produce them remain;
- words without removed tokens keep their tokens, because a removed merge led to removed tokens;
- words with removed tokens are segmented by the remaining merges. Usually that gives the parts, but
  a part may join its neighbour: with merges "ab" and "bc", "abc" is `ab c`; without "ab", `a bc`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from tokenmill.core.errors import InternalError, UserError
from tokenmill.core.records import Int64Array, TokenBatch
from tokenmill.encode.model_alone import ModelAlone
from tokenmill.encode.tokenizer_json import Json, is_version, merge_pair
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.changing.base import (
    Base,
    Changed,
    frequencies,
    num_tokens,
    segmented,
)

NewIds = Sequence[int | None]
"""New ids by old id; None if the token was removed."""


def renumbered(document: Json, new_ids: NewIds) -> Json:
    """Replace the ids in the vocabulary, added tokens, post-processor and padding.

    Every token in the tokenizer.json must have a new id.
    """
    model = document["model"]
    vocab = {token: _new(new_ids, token_id) for token, token_id in model["vocab"].items()}
    added = [{**token, "id": _new(new_ids, token["id"])} for token in document["added_tokens"]]
    changed = {**document, "added_tokens": added, "model": {**model, "vocab": vocab}}
    if document.get("post_processor"):
        changed["post_processor"] = _post_processor(document["post_processor"], new_ids)
    if document.get("padding"):
        padding = document["padding"]
        changed["padding"] = {**padding, "pad_id": _new(new_ids, padding["pad_id"])}
    return changed


def renumbered_config(config: Json, new_ids: NewIds) -> Json:
    """Replace the ids in a tokenizer_config.json's table of added tokens."""
    table = config.get("added_tokens_decoder")
    if not table:
        return config
    changed = {str(_new(new_ids, int(token_id))): token for token_id, token in table.items()}
    return {**config, "added_tokens_decoder": changed}


def _post_processor(step: Json, new_ids: NewIds) -> Json:
    match step.get("type"):
        case "Sequence":
            members = [_post_processor(member, new_ids) for member in step["processors"]]
            return {**step, "processors": members}
        case "TemplateProcessing":
            tokens = {
                name: {**token, "ids": [_new(new_ids, i) for i in token["ids"]]}
                for name, token in step["special_tokens"].items()
            }
            return {**step, "special_tokens": tokens}
        case "BertProcessing" | "RobertaProcessing":
            pairs = {name: [step[name][0], _new(new_ids, step[name][1])] for name in ("sep", "cls")}
            return {**step, **pairs}
        case _:
            return step


def _new(new_ids: NewIds, old: int) -> int:
    """Return the new id of a kept token."""
    new = new_ids[old] if 0 <= old < len(new_ids) else None
    if new is None:
        why = f"its configuration names id {old}, but no token has this id"
        hint = "load and save the tokenizer with transformers to make its files consistent"
        raise UserError("cannot renumber the tokenizer's ids", why=why, hint=hint)
    return new


NO_RANK = 1 << 62


def trim(base: Base, words: WordCounts, size: int) -> Changed:
    """Remove tokens until `size` are left; ids without a token do not count.

    Raises:
        UserError: more than `size` tokens cannot be removed, or the tokenizer is not larger.
    """
    old = ModelAlone(base.document, base.origin)
    before = segmented(old, words)
    found = frequencies(before, words, base.num_ids)
    removed = _removed(base, found, size)
    gone = {base.tokens[token] for token in removed}
    kept = sorted(set(base.tokens.values()) - gone)
    new_ids: list[int | None] = [None] * base.num_ids
    for new_id, old_id in enumerate(kept):
        new_ids[old_id] = new_id
    document = renumbered(_without(base, set(removed)), new_ids)
    new = ModelAlone(document, base.origin)
    after = segmented(new, words)
    changed = _changed_words(before, gone)
    _check_words(base, (before, after), changed, new_ids)
    _check_tokens(base, document, old, new)
    unchanged = next((new for new, old_id in enumerate(kept) if new != old_id), len(kept))
    return Changed(
        document,
        removed,
        new_ids,
        num_unchanged=unchanged,
        rows=[[old_id] for old_id in kept[unchanged:]],
        figures={
            "ids_before": base.num_ids,
            "ids_after": size,
            "removed": len(removed),
            "tokens_before": num_tokens(before, words),
            "tokens_after": num_tokens(after, words),
            "words_changed": int(changed.sum()),  # unique words that contained a removed token
        },
    )


def _removed(base: Base, found: Int64Array, size: int) -> list[str]:
    """Return the tokens to remove, in order."""
    stay = base.opaque | {token for token in base.tokens if len(token) == 1}
    if size >= len(base.tokens):
        why = f"it has {len(base.tokens):,} tokens; you asked for {size:,}"
        raise UserError("there is nothing to trim", where=base.origin, why=why)
    if size < len(stay):
        why = f"{len(stay):,} tokens cannot be removed: added tokens, bytes and single characters"
        raise UserError(f"cannot trim the tokenizer to {size:,}", where=base.origin, why=why)
    leaves = _Leaves(base, found, stay)
    return [leaves.remove() for _ in range(len(base.tokens) - size)]


class _Leaves:
    """Tokens that may be removed, least frequent first."""

    def __init__(self, base: Base, found: Int64Array, stay: set[str]) -> None:
        self._origin, self._tokens, self._stay = base.origin, base.tokens, stay
        self._mass = {token: int(found[token_id]) for token, token_id in base.tokens.items()}
        self._merges: dict[str, list[tuple[str, str]]] = {}
        self._uses = dict.fromkeys(base.tokens, 0)
        for pair in dict.fromkeys(base.merges):
            self._merges.setdefault("".join(pair), []).append(pair)
            for side in set(pair):
                self._uses[side] += 1
        self._parts = _Parts(base)
        self._removed: set[str] = set()
        self._heap: list[tuple[int, int, str]] = []
        for token in base.tokens:
            self._offer(token)

    def remove(self) -> str:
        """Remove the next leaf, and return it."""
        token, mass = "", -1
        while not token:
            if not self._heap:
                what = f"cannot trim the tokenizer below {len(self._tokens) - len(self._removed):,}"
                why = "all remaining tokens are parts of added tokens"
                raise UserError(what, where=self._origin, why=why)
            mass, _, token = heapq.heappop(self._heap)
            if token in self._removed or mass != self._mass[token]:
                token = ""  # a stale entry: the token was offered again with more mass
        self._removed.add(token)
        for part in self._kept_parts(token):
            self._mass[part] += mass
            self._offer(part)
        for pair in self._merges.get(token, ()):
            for side in set(pair):
                self._uses[side] -= 1
                self._offer(side)
        return token

    def _offer(self, token: str) -> None:
        if not self._uses[token] and token not in self._stay and token not in self._removed:
            heapq.heappush(self._heap, (self._mass[token], -self._tokens[token], token))

    def _kept_parts(self, token: str) -> Iterator[str]:
        """Yield the parts of a token; removed parts are replaced by their parts."""
        for part in self._parts.of(token):
            if part in self._removed:
                yield from self._kept_parts(part)
            else:
                yield part


class _Parts:
    """Segments the text of tokens without using the tokens themselves."""

    def __init__(self, base: Base) -> None:
        self._tokens = base.tokens
        self._ranks = {pair: rank for rank, pair in enumerate(base.merges)}

    def of(self, token: str) -> list[str]:
        """Return the parts of a token; characters without a token are left out."""
        parts = [symbol for symbol in token if symbol in self._tokens]
        ends = list(range(1, len(parts) + 1))
        """The index after each part; a part is stored at its first symbol."""
        starts = list(range(-1, len(parts)))
        """The start of the part that ends before each symbol."""
        heap = [(self._rank(parts, ends, i), i) for i in range(len(parts))]
        heapq.heapify(heap)
        while heap and heap[0][0] < NO_RANK:
            rank, i = heapq.heappop(heap)
            end = ends[i]
            if not parts[i] or rank != self._rank(parts, ends, i):
                continue  # one of the two has already been merged
            if parts[i] + parts[end] == token:
                continue
            parts[i], parts[end] = parts[i] + parts[end], ""
            ends[i] = ends[end]
            starts[ends[i]] = i
            heapq.heappush(heap, (self._rank(parts, ends, i), i))
            if starts[i] >= 0:
                heapq.heappush(heap, (self._rank(parts, ends, starts[i]), starts[i]))
        return list(filter(None, parts))

    def _rank(self, parts: list[str], ends: list[int], i: int) -> int:
        """Return the rank of the merge of a part with the next one."""
        end = ends[i]
        return self._ranks.get((parts[i], parts[end]), NO_RANK) if end < len(parts) else NO_RANK


def _without(base: Base, removed: set[str]) -> Json:
    """Return the tokenizer.json without some tokens, with unchanged ids."""
    model = base.document["model"]
    vocab = {token: token_id for token, token_id in base.tokens.items() if token not in removed}
    merges = [
        merge
        for merge in model["merges"]
        if is_version(merge) or "".join(merge_pair(merge)) not in removed
    ]
    return {**base.document, "model": {**model, "vocab": vocab, "merges": merges}}


def _changed_words(before: TokenBatch, gone: set[int]) -> Int64Array:
    """Return 1 for words with a removed token, else 0; shape (num_words,)."""
    is_gone = np.isin(before.ids, np.fromiter(gone, np.int64, len(gone)))
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_gone, dtype=np.int64)])
    return (np.diff(sums[before.offsets]) > 0).astype(np.int64)


def _check_words(
    base: Base,
    batches: tuple[TokenBatch, TokenBatch],
    changed: Int64Array,
    new_ids: list[int | None],
) -> None:
    """Check that words without removed tokens keep their tokens."""
    before, after = batches
    table = np.array([-1 if new is None else new for new in new_ids], np.int64)
    same = [
        table[before.ids[np.repeat(changed == 0, before.lengths)]],
        after.ids[np.repeat(changed == 0, after.lengths)],
    ]
    if not np.array_equal(*same):
        raise InternalError(
            "a word without removed tokens is encoded differently", where=base.origin
        )


def _check_tokens(base: Base, document: Json, old: ModelAlone, new: ModelAlone) -> None:
    """Check that no token became unreachable."""
    ids = document["model"]["vocab"]
    tokens = [token for token in ids if token not in base.opaque]
    ours = _reached(new, tokens, ids)
    theirs = _reached(old, tokens, base.tokens)
    if lost := [token for token in tokens if theirs[token] and not ours[token]]:
        why = f"{lost[0]!r} (id {ids[lost[0]]}) and {len(lost) - 1:,} others"
        raise InternalError("tokens became unreachable", where=base.origin, why=why)


def _reached(model: ModelAlone, tokens: list[str], ids: dict[str, int]) -> dict[str, bool]:
    """Return whether each token is the encoding of its own text."""
    batch = model.encode(tokens)
    firsts = np.append(batch.ids, 0)[batch.offsets[:-1]].tolist()
    alone = (batch.lengths == 1).tolist()
    return {
        token: one and first == ids[token]
        for token, one, first in zip(tokens, alone, firsts, strict=True)
    }

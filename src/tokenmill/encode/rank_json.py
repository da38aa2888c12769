"""Convert a rank file to a tokenizer.json with the same ids, for engines that need one."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np

from tokenmill.encode.encodings import byte_symbols, parse_ranks
from tokenmill.encode.published_encodings import Encoding
from tokenmill.encode.rank_merges import merges_of

Json = dict[str, Any]

_BYTE_LEVEL: Json = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
MAX_MERGE_BYTES = 1 << 26
"""A token of n bytes can have n merges of n bytes each. Published files need 2 to 6 MB."""
_FREE = "\U0010ffff"
"""The prefix of placeholder tokens for unused ids. It spells no byte, so no text contains it."""


def outline_of_ranks(encoding: Encoding) -> Json | None:
    """Return the result of `ranks_to_json`, decoded, with only the 256 byte tokens."""
    if encoding.json_split is None:
        return None
    return _document(encoding, {symbol: i for i, symbol in enumerate(byte_symbols())}, [])


def ranks_to_json(data: bytes, encoding: Encoding, *, fill: bool = False) -> bytes | None:
    """Return an equivalent tokenizer.json, or None if there is none.

    There is none if tokenizer.json cannot express the split, or if the merges would take too much
    memory. Every way to split a token into two known ones becomes a merge; `ignore_merges` covers
    tokens that no merge reaches. `fill` adds placeholder tokens for unused ids, if there are few,
    and drops the empty token: fastokens requires consecutive ids and non-empty tokens.
    """
    if encoding.json_split is None:
        return None
    ranks = parse_ranks(data)
    tokens = sorted(ranks, key=ranks.__getitem__)
    spelled = _spelled(tokens)
    of_token = dict(zip(tokens, spelled, strict=True))
    vocab = {of_token[token]: rank for token, rank in ranks.items()}
    if fill:
        vocab = _filled(vocab)
    found = merges_of(tokens)
    lengths = np.fromiter(map(len, tokens), np.int64, len(tokens))
    if lengths[found.lefts].sum() + lengths[found.rights].sum() > MAX_MERGE_BYTES:
        return None
    lefts, rights = (column.tolist() for column in found)
    merges = [(spelled[left], spelled[right]) for left, right in zip(lefts, rights, strict=True)]
    return msgspec.json.encode(_document(encoding, vocab, merges))


def _filled(vocab: dict[str, int]) -> dict[str, int]:
    vocab = {token: i for token, i in vocab.items() if token}
    taken = set(vocab.values())
    if max(taken) < 2 * len(taken):
        vocab |= {f"{_FREE}{i}": i for i in range(max(taken)) if i not in taken}
    return vocab


def _spelled(tokens: list[bytes]) -> list[str]:
    """Spell tokens in the byte-level alphabet."""
    text = b"".join(tokens).decode("latin-1").translate(dict(enumerate(byte_symbols())))
    offsets = itertools.accumulate(map(len, tokens), initial=0)
    return [text[start:stop] for start, stop in itertools.pairwise(offsets)]


def _document(encoding: Encoding, vocab: dict[str, int], merges: list[tuple[str, str]]) -> Json:
    pre_tokenizer: Json = {**_BYTE_LEVEL, "use_regex": True}
    if encoding.json_split:
        pattern = {"Regex": encoding.json_split}
        split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
        members = [split, {**_BYTE_LEVEL, "use_regex": False}]
        pre_tokenizer = {"type": "Sequence", "pretokenizers": members}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": True,
        "vocab": vocab,
        "merges": merges,
    }
    keys = ("version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer")
    values: tuple[object, ...] = ("1.0", None, None, [], None, pre_tokenizer)
    head = dict(zip(keys, values, strict=True))
    decoder = {**_BYTE_LEVEL, "use_regex": True}
    return {**head, "post_processor": None, "decoder": decoder, "model": model}

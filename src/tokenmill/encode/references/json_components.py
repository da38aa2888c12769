"""Split a tokenizer into components that determine the ids of a text, in canonical form.

    model           type, unknown token, affixes, fallbacks
    vocabulary      content -> id; for Unigram, [content, score as float32] in the order of ids
    merges          [left, right], in order of priority
    normalizer      list of steps
    pre_tokenizer   list of steps
    added_tokens    content -> id and flags
    answers         for a Python tokenizer, a digest of its ids for fixed strings

The same tokenizer.json can be spelled in many ways: merges as "a b" or ["a", "b"], missing keys
with a default, a sequence of one step, added tokens with ids that the library ignores. All
spellings give the same components. Parts that do not affect the ids are left out: truncation,
padding, decoder, version, offsets. The post-processor is left out too, because it only adds ids
around a text, which the manifest records (`prefix_ids`, `eos_id`).
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_json import Json, loaded_ids, read_tokenizer

T = TypeVar("T")

_MODEL_DEFAULTS: dict[str, Json] = {
    "BPE": {
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    },
    "Unigram": {"unk_id": None, "byte_fallback": False},
}
_SAME_AS_NONE = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
"""BPE options for which 0 and "" mean the same as null."""
_NORMALIZER_DEFAULTS: dict[str, Json] = {"BertNormalizer": {"strip_accents": None}}
_PRE_TOKENIZER_DEFAULTS: dict[str, Json] = {
    "ByteLevel": {"use_regex": True},
    "FixedLength": {"length": 5},
    "Metaspace": {"prepend_scheme": "always", "split": True},
    "Punctuation": {"behavior": "Isolated"},
}
_NO_SAY = {"ByteLevel": ("trim_offsets",), "Metaspace": ("add_prefix_space", "str_rep")}
"""Keys that affect only offsets, and old keys that duplicate another one."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def json_components(file: TokenizerFile) -> dict[str, Any]:
    """Return the components of a tokenizer.json by name, without those it does not have."""
    tokenizer = read_tokenizer(file.data)
    model = dict(tokenizer["model"])
    vocab = model.pop("vocab")
    merges = model.pop("merges", None)
    ids = vocab
    if model["type"] == "Unigram":
        vocab = _scored(vocab)
        ids = {content: i for i, (content, _) in enumerate(vocab)}
    model = {**_MODEL_DEFAULTS.get(model["type"], {}), **model}
    if model["type"] == "BPE":
        model |= {name: model[name] or None for name in _SAME_AS_NONE}
    found = {"model": model, "vocabulary": vocab}
    if merges is not None:
        found["merges"] = _merges(merges)
    normalizer, pre_tokenizer = tokenizer.get("normalizer"), tokenizer.get("pre_tokenizer")
    found["normalizer"] = _steps(normalizer, "normalizers", _NORMALIZER_DEFAULTS)
    found["pre_tokenizer"] = _steps(pre_tokenizer, "pretokenizers", _PRE_TOKENIZER_DEFAULTS)
    found["added_tokens"] = _added_tokens(ids, tokenizer.get("added_tokens") or [])
    return found


def _scored(vocab: list[Any]) -> list[list[Any]]:
    """Return pieces with scores rounded to float32, the precision of SentencePiece models.

    The library misreads the last digit of one double in seven, so saving a file again changes
    scores. Rounding hides that, but also hides real differences below the precision of float32,
    which can change the ids of a text if two segmentations are nearly tied.
    """
    with np.errstate(over="ignore"):
        scores = np.array([float(score) for _, score in vocab]).astype(np.float32)
    return [[piece[0], score] for piece, score in zip(vocab, scores.tolist(), strict=True)]


def _merges(merges: list[Any]) -> list[list[str]]:
    """Return merges as pairs, in order; of duplicates, the library keeps the last."""
    if merges and isinstance(merges[0], str):
        merges = [merge for merge in merges if not merge.startswith("#version")]
        return [merge.split(" ") for merge in _last_ones(merges)]
    return [*map(list, _last_ones([*map(tuple, merges)]))]


def _last_ones(items: list[T]) -> list[T]:
    """Remove duplicates; the last one stays."""
    return items if len({*items}) == len(items) else [*reversed(dict.fromkeys(reversed(items)))]


def _steps(component: Json | None, members: str, defaults: dict[str, Json]) -> list[Json]:
    """Return the steps of a component as a flat list."""
    if component is None:
        return []
    if component.get("type") == "Sequence":
        return [step for part in component[members] for step in _steps(part, members, defaults)]
    kind = component.get("type", "")
    step = {**defaults.get(kind, {}), **component}
    return [{key: value for key, value in step.items() if key not in _NO_SAY.get(kind, ())}]


def _added_tokens(vocab: dict[str, int], added: list[Json]) -> dict[str, Json]:
    """Return flags by content, with the ids that the library assigns; the last duplicate wins."""
    named = [token for token in added if token["content"]]
    ids = loaded_ids(vocab, named)
    return {
        token["content"]: {"id": i, **{flag: bool(token[flag]) for flag in _FLAGS}}
        for token, i in zip(named, ids, strict=True)
    }

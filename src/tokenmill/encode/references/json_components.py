"""What the ids of a text depend on, in one spelling: the components of a tokenizer.

    model           type, unknown token, affixes, fallbacks
    vocabulary      content -> id; for Unigram [content, score as float32] in the order of ids
    merges          [left, right], first one first
    normalizer      steps, one after another
    pre_tokenizer   steps, one after another
    added_tokens    content -> id and flags
    answers         of a Python tokenizer: a digest of its ids of fixed strings

A tokenizer.json can be spelled in many ways that load alike: merges as "a b" or ["a", "b"], keys
that are missing where the library has a default, a sequence of one step, ids of added tokens that
the library gives anew. All of them get the same components. Left out is what has no say in the ids
of a text: truncation, padding, decoder, version, offsets. The post-processor is left out too: it
stands around a text, and a manifest records what that comes to (`prefix_ids`, `eos_id`).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import numpy as np

from tokenmill.encode.added_tokens import loaded_ids
from tokenmill.encode.tokenizer import TokenizerFile

Json = dict[str, Any]
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
"""Of BPE: 0 and the empty string do nothing, like null."""
_NORMALIZER_DEFAULTS: dict[str, Json] = {"BertNormalizer": {"strip_accents": None}}
_PRE_TOKENIZER_DEFAULTS: dict[str, Json] = {
    "ByteLevel": {"use_regex": True},
    "FixedLength": {"length": 5},
    "Metaspace": {"prepend_scheme": "always", "split": True},
    "Punctuation": {"behavior": "Isolated"},
}
_NO_SAY = {"ByteLevel": ("trim_offsets",), "Metaspace": ("add_prefix_space", "str_rep")}
"""Keys that only offsets depend on, and old ones that another key repeats."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def json_components(file: TokenizerFile) -> dict[str, Any]:
    """The components of a tokenizer.json, by name; those that it does not have are absent."""
    tokenizer: Json = msgspec.json.decode(file.data, type=dict)
    model = dict(tokenizer["model"])
    vocab = model.pop("vocab")
    model["type"] = model.get("type") or _untyped(model, vocab)
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
    """Pieces with scores to the nearest float32, which is what SentencePiece models hold.

    The library reads one double in seven with another last digit than is written, so that saving a
    file again changes scores. Scores that are closer than a float32 can tell are one score here;
    where two ways to cut a text are as close as that, ids may differ all the same.
    """
    with np.errstate(over="ignore"):
        scores = np.array([float(score) for _, score in vocab]).astype(np.float32)
    return [[piece[0], score] for piece, score in zip(vocab, scores.tolist(), strict=True)]


def _untyped(model: Json, vocab: object) -> str:
    """The type of a model in a file of the time before files said so."""
    if "merges" in model:
        return "BPE"
    if isinstance(vocab, list):
        return "Unigram"
    return "WordPiece" if "max_input_chars_per_word" in model else "WordLevel"


def _merges(merges: list[Any]) -> list[list[str]]:
    """Pairs in their order; of one that stands there twice, the library keeps the last."""
    if merges and isinstance(merges[0], str):
        merges = [merge for merge in merges if not merge.startswith("#version")]
        return [merge.split(" ") for merge in _last_ones(merges)]
    return [*map(list, _last_ones([*map(tuple, merges)]))]


def _last_ones(items: list[T]) -> list[T]:
    """Without those that come once more."""
    return items if len({*items}) == len(items) else [*reversed(dict.fromkeys(reversed(items)))]


def _steps(component: Json | None, members: str, defaults: dict[str, Json]) -> list[Json]:
    """The steps of a component; a sequence inside a sequence does what its members do."""
    if component is None:
        return []
    if component.get("type") == "Sequence":
        return [step for part in component[members] for step in _steps(part, members, defaults)]
    kind = component.get("type", "")
    step = {**defaults.get(kind, {}), **component}
    return [{key: value for key, value in step.items() if key not in _NO_SAY.get(kind, ())}]


def _added_tokens(vocab: dict[str, int], added: list[Json]) -> dict[str, Json]:
    """Flags by content, the last ones counting, with the ids that the library gives."""
    named = [token for token in added if token["content"]]
    ids = loaded_ids(vocab, named)
    return {
        token["content"]: {"id": i, **{flag: bool(token[flag]) for flag in _FLAGS}}
        for token, i in zip(named, ids, strict=True)
    }

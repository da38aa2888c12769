"""The parts of a tokenizer.json: steps, merges, added tokens.

A file can spell the same thing in several ways; the functions below hide that.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

Json = dict[str, Any]
Pair = tuple[str, str]

MARK = "▁"
"""How SentencePiece's vocabularies spell a space."""
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
"""The tokens for single bytes of vocabularies that fall back to bytes."""
SINGLE_DIGITS: Json = {"type": "Digits", "individual_digits": True}
_WORD_PIECE = ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word")


def read_tokenizer(data: bytes) -> Json:
    """Return the contents of a tokenizer.json, with the type of its model filled in.

    Raises:
        MsgspecError: it is not a JSON object.
    """
    tokenizer: Json = msgspec.json.decode(data, type=dict)
    model = tokenizer.get("model")
    if isinstance(model, dict) and "type" not in model:
        model["type"] = _type_by_fields(model)
    return tokenizer


def _type_by_fields(model: Json) -> str:
    """Return the type that the library assumes for the model of an old file, by its fields."""
    if isinstance(model.get("vocab"), list):
        return "Unigram"
    if model.get("merges") is not None:
        return "BPE"
    is_word_piece = all(model.get(field) is not None for field in _WORD_PIECE)
    return "WordPiece" if is_word_piece else "WordLevel"


def steps_of(component: Json | None, members: str) -> Iterator[Json]:
    """Yield the steps of a component, including those of nested sequences."""
    if component is None:
        return
    if component["type"] != "Sequence":
        yield component
        return
    for member in component[members]:
        yield from steps_of(member, members)


def normalizers(tokenizer: Json) -> list[Json]:
    """Return the steps of the normalizer."""
    return [*steps_of(tokenizer.get("normalizer"), "normalizers")]


def pre_tokenizers(tokenizer: Json) -> list[Json]:
    """Return the steps of the pre-tokenizer."""
    return [*steps_of(tokenizer.get("pre_tokenizer"), "pretokenizers")]


def covers_text(split: Json) -> bool:
    """Whether a Split keeps the whole text if its pattern matches every character."""
    invert = bool(split.get("invert"))
    return (split.get("behavior"), invert) in {("Isolated", False), ("Removed", True)}


def with_library(tokenizer: Json, steps: list[Json]) -> Any:
    """Load a tokenizer with the same normalizer and these pre-tokenizers, without a vocabulary."""
    import tokenizers

    made = {
        "version": "1.0",
        "normalizer": tokenizer.get("normalizer"),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    return tokenizers.Tokenizer.from_str(msgspec.json.encode(made).decode())


def merges_of(model: Json) -> list[Pair]:
    """Return the merges of a model as pairs."""
    return [merge_pair(merge) for merge in model["merges"] if not is_version(merge)]


def is_version(merge: str | list[str]) -> bool:
    """Whether an entry of an old merge list is only a version line."""
    return isinstance(merge, str) and merge.startswith("#version")


def merge_pair(merge: str | list[str]) -> Pair:
    """Return the two sides of a merge, spelled as "a b" or ["a", "b"]."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right


def loaded_ids(vocab: dict[str, int], added: list[Json]) -> list[int]:
    """Return the ids that the reference assigns to added tokens.

    It ignores the ids in the file for tokens outside the vocabulary, and numbers them from
    `len(vocab)`, even if the vocabulary has gaps and therefore larger ids.
    """
    contents = [token["content"] for token in added]
    new = dict.fromkeys(content for content in contents if content not in vocab)
    ids = vocab | dict(zip(new, itertools.count(len(vocab)), strict=False))
    return [ids[content] for content in contents]


def matched_tokens(tokenizer: Json, control_tokens: bool) -> list[Json]:
    """Return the added tokens that are matched in texts.

    Special tokens that are read as text still count, because they hide tokens inside them.
    """
    added = tokenizer.get("added_tokens") or []
    if control_tokens or not all(token.get("special") for token in added):
        return list(added)
    return []


def matched_contents(tokenizer: Json, control_tokens: bool) -> list[str]:
    """Return the contents of the added tokens matched in texts, normalized if the token is."""
    found = matched_tokens(tokenizer, control_tokens)
    normalizer = with_library(tokenizer, []).normalizer if found else None
    return [
        normalizer.normalize_str(token["content"])
        if normalizer and token.get("normalized")
        else token["content"]
        for token in found
    ]

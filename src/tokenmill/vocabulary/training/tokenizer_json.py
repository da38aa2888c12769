"""tokenizer.json of a trained model: its steps, in the spelling of the `tokenizers` library.

    split       normalizer and pre-tokenizer, as the words were counted
    decoder     what undoes them: bytes, ▁, continuation marks
    template    BOS before every text if there is one; [CLS] and [SEP] around it for WordPiece
    specials    in the vocabulary and among the added tokens, so that no library renumbers them

Models over bytes spell each byte by a printable character (GPT-2); models over characters with
fallback spell bytes <0x00> to <0xFF> (SentencePiece).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenmill.errors import UserError
from tokenmill.vocabulary.training.options import Role
from tokenmill.words.splits import Split

Json = dict[str, Any]

BYTE_TOKENS = tuple(f"<0x{byte:02X}>" for byte in range(256))
CONTINUATION = "##"
LONGEST_WORD_CHARACTERS = 100
"""WordPiece makes longer words unknown, as BERT does."""
_BYTE_LEVEL: Json = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_BYTE_FALLBACK_DECODER: Json = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}


def compose(
    split: Split,
    model: Json,
    special_ids: Mapping[str, int],
    roles: Mapping[Role, str],
) -> Json:
    """The content of a tokenizer.json; `model` holds the special tokens already."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": content,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for content, i in special_ids.items()
        ],
        "normalizer": split.normalizer,
        "pre_tokenizer": split.pre_tokenizer,
        "post_processor": post_processor(split, model, special_ids, roles),
        "decoder": _decoder(split, model),
        "model": model,
    }


def bpe_model(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], unk: str | None, fallback: bool
) -> Json:
    """A BPE model; `fallback` spells characters that are no token by <0x00> to <0xFF>."""
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unk,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": fallback,
        "byte_fallback": fallback,
        "ignore_merges": False,
        "vocab": dict(vocab),
        "merges": [list(pair) for pair in merges],
    }


def wordpiece_model(vocab: Mapping[str, int], unk: str) -> Json:
    """A WordPiece model whose tokens inside words begin with ##."""
    return {
        "type": "WordPiece",
        "unk_token": unk,
        "continuing_subword_prefix": CONTINUATION,
        "max_input_chars_per_word": LONGEST_WORD_CHARACTERS,
        "vocab": dict(vocab),
    }


def wordlevel_model(vocab: Mapping[str, int], unk: str) -> Json:
    """A WordLevel model: a word is a token, or unknown."""
    return {"type": "WordLevel", "vocab": dict(vocab), "unk_token": unk}


def numbered(
    special_ids: Mapping[str, int], tokens: Sequence[str], other_ids: Sequence[int]
) -> dict[str, int]:
    """All tokens with their ids, in the order of the ids.

    Raises:
        UserError: a special token is spelled like another token.
    """
    vocab = dict(zip(tokens, other_ids, strict=True))
    if both := sorted(vocab.keys() & special_ids.keys()):
        why = "the vocabulary holds this string as an ordinary token"
        raise UserError(f"{both[0]!r} cannot be a special token", why=why, hint="choose another")
    return dict(sorted([*vocab.items(), *special_ids.items()], key=lambda token: token[1]))


def marks_spaces(split: Split) -> bool:
    """Whether a split makes spaces into ▁, as SentencePiece does."""
    return any(
        step["type"] == "Metaspace" or step.get("content") == "▁"
        for step in (*steps(split.normalizer, "normalizers"), *pre_tokenizers(split))
    )


def pre_tokenizers(split: Split) -> list[Json]:
    """The steps of a split's pre-tokenizer."""
    return steps(split.pre_tokenizer, "pretokenizers")


def steps(component: Json | None, members: str) -> list[Json]:
    """The steps of a component that may be a sequence, also of sequences."""
    if component is None:
        return []
    if component["type"] != "Sequence":
        return [component]
    return [step for member in component[members] for step in steps(member, members)]


def _decoder(split: Split, model: Json) -> Json | None:
    if split.byte_level:
        return dict(_BYTE_LEVEL)
    if model["type"] == "WordPiece":
        return {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True}
    if model.get("byte_fallback"):
        return _BYTE_FALLBACK_DECODER
    for step in pre_tokenizers(split):
        if step["type"] == "Metaspace":
            return {key: value for key, value in step.items() if key != "split"}
    return _BYTE_FALLBACK_DECODER if marks_spaces(split) else None


def post_processor(
    split: Split, model: Json, special_ids: Mapping[str, int], roles: Mapping[Role, str]
) -> Json | None:
    """What is put around a text; None where nothing is."""
    processors: list[Json] = [{**_BYTE_LEVEL, "trim_offsets": False}] if split.byte_level else []
    around = model["type"] == "WordPiece" and {"bos", "eos"} <= roles.keys()
    if around:
        processors.append(_template(special_ids, [roles["bos"]], [roles["eos"]]))
    elif "bos" in roles:
        processors.append(_template(special_ids, [roles["bos"]], []))
    if len(processors) < 2:
        return processors[0] if processors else None
    return {"type": "Sequence", "processors": processors}


def _template(special_ids: Mapping[str, int], before: list[str], after: list[str]) -> Json:
    """What is put around a text, and around the second of two."""

    def special(content: str, type_id: int) -> Json:
        return {"SpecialToken": {"id": content, "type_id": type_id}}

    single = [
        *(special(content, 0) for content in before),
        {"Sequence": {"id": "A", "type_id": 0}},
        *(special(content, 0) for content in after),
    ]
    # BERT puts [SEP] alone between two texts; GPT-likes begin each with BOS.
    second = [] if after else before
    pair = [
        *single,
        *(special(content, 1) for content in second),
        {"Sequence": {"id": "B", "type_id": 1}},
        *(special(content, 1) for content in after),
    ]
    used = dict.fromkeys([*before, *after])
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": {
            content: {"id": content, "ids": [special_ids[content]], "tokens": [content]}
            for content in used
        },
    }

"""Write the tokenizer.json of a trained model, in the spelling of the `tokenizers` library.

    split       the normalizer and pre-tokenizer that the words were counted with
    decoder     reverses them: bytes, ▁, continuation marks
    template    BOS before every text, if there is one; for WordPiece, [CLS] and [SEP] around it
    specials    in the vocabulary and the added tokens, so that no library renumbers them

Models over bytes spell each byte as a printable character (GPT-2); models over characters with
fallback spell bytes <0x00> to <0xFF> (SentencePiece).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tokenmill.core.errors import UserError
from tokenmill.encode.tokenizer_json import Json, normalizers, pre_tokenizers
from tokenmill.encode.words.splits import Split
from tokenmill.store.canonical import canonical_json
from tokenmill.vocabulary.training.options import Role
from tokenmill.vocabulary.training.training_input import TrainingInput, Vocabulary

CONTINUATION = "##"
LONGEST_WORD_CHARACTERS = 100
"""Longer words are unknown to WordPiece, as in BERT."""
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
    """Return the content of a tokenizer.json; `model` already contains the special tokens."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(content, i) for content, i in special_ids.items()],
        **split.steps,
        "post_processor": post_processor(split, model, special_ids, roles),
        "decoder": _decoder(split, model),
        "model": model,
    }


def added_token(content: str, token_id: int) -> Json:
    """Return a special token as the library spells it."""
    flags = ("single_word", "lstrip", "rstrip", "normalized")
    return {"id": token_id, "content": content, **dict.fromkeys(flags, False), "special": True}


def bpe_model(
    vocab: Mapping[str, int], merges: Sequence[tuple[str, str]], unk: str | None, fallback: bool
) -> Json:
    """Return a BPE model; with `fallback`, unknown characters become <0x00> to <0xFF>."""
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
    """Return a WordPiece model, with ## before tokens inside words."""
    return {
        "type": "WordPiece",
        "unk_token": unk,
        "continuing_subword_prefix": CONTINUATION,
        "max_input_chars_per_word": LONGEST_WORD_CHARACTERS,
        "vocab": dict(vocab),
    }


def wordlevel_model(vocab: Mapping[str, int], unk: str) -> Json:
    """Return a WordLevel model: a word is either a token or unknown."""
    return {"type": "WordLevel", "vocab": dict(vocab), "unk_token": unk}


def finished(
    given: TrainingInput,
    tokens: Sequence[str],
    model_of: Callable[[dict[str, int]], Json],
    num_tokens: int | None = None,
) -> Vocabulary:
    """Return a vocabulary with its tokenizer.json; `model_of` makes the model of all ids.

    Raises:
        UserError: a special token is spelled like another token.
    """
    numbering = given.specials.numbered(len(tokens))
    vocab = dict(zip(tokens, numbering.other_ids, strict=True))
    if both := sorted(vocab.keys() & numbering.special_ids.keys()):
        why = "the vocabulary holds this string as an ordinary token"
        raise UserError(f"{both[0]!r} cannot be a special token", why=why, hint="choose another")
    vocab |= numbering.special_ids
    model = model_of(dict(sorted(vocab.items(), key=lambda token: token[1])))
    tokenizer = compose(given.split, model, numbering.special_ids, given.specials.roles)
    files = {"tokenizer.json": canonical_json(tokenizer)}
    return Vocabulary(len(vocab), numbering.special_ids, files, num_tokens)


def marks_spaces(split: Split) -> bool:
    """Whether a split turns spaces into ▁, like SentencePiece."""
    return any(
        step["type"] == "Metaspace" or step.get("content") == "▁"
        for step in normalizers(split.steps) + pre_tokenizers(split.steps)
    )


def _decoder(split: Split, model: Json) -> Json | None:
    if split.byte_level:
        return dict(_BYTE_LEVEL)
    if model["type"] == "WordPiece":
        return {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True}
    if model.get("byte_fallback") or model["type"] == "Unigram":
        return _BYTE_FALLBACK_DECODER
    for step in pre_tokenizers(split.steps):
        if step["type"] == "Metaspace":
            return {key: value for key, value in step.items() if key != "split"}
    return _BYTE_FALLBACK_DECODER if marks_spaces(split) else None


def post_processor(
    split: Split, model: Json, special_ids: Mapping[str, int], roles: Mapping[Role, str]
) -> Json | None:
    """Return the post-processor that adds special tokens around a text; None if there are none."""
    processors: list[Json] = [{**_BYTE_LEVEL, "trim_offsets": False}] if split.byte_level else []
    around = model["type"] == "WordPiece" and {"bos", "eos"} <= roles.keys()
    if around:
        processors.append(template(special_ids, [roles["bos"]], [roles["eos"]]))
    elif "bos" in roles:
        processors.append(template(special_ids, [roles["bos"]], []))
    if len(processors) < 2:
        return processors[0] if processors else None
    return {"type": "Sequence", "processors": processors}


def template(special_ids: Mapping[str, int], before: list[str], after: list[str]) -> Json:
    """Return the special tokens around a text, and around the second text of a pair."""

    def special(content: str, type_id: int) -> Json:
        return {"SpecialToken": {"id": content, "type_id": type_id}}

    single = [
        *(special(content, 0) for content in before),
        {"Sequence": {"id": "A", "type_id": 0}},
        *(special(content, 0) for content in after),
    ]
    # BERT puts a single [SEP] between two texts; models like GPT begin each text with BOS.
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

"""Small tokenizers, built as JSON so that a test can change one thing in them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.encodings import byte_symbols
from tokenmill.encode.tokenizer import TokenizerFile

Json = dict[str, Any]

BYTE_LEVEL: Json = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
BYTES_ONLY: Json = {**BYTE_LEVEL, "use_regex": False}


def byte_level_json(**changes: Any) -> Json:
    """256 bytes, then " a" (256), "bc" (257), "abc" (258); `model` is merged, the rest replaced."""
    vocab = {symbol: byte for byte, symbol in enumerate(byte_symbols())}
    vocab |= {"Ġa": 256, "bc": 257, "abc": 258}
    merges = [["Ġ", "a"], ["b", "c"], ["a", "bc"]]
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": merges,
    }
    return _tokenizer(model, changes, pre_tokenizer=BYTE_LEVEL, decoder=BYTE_LEVEL)


def sentencepiece_json(**changes: Any) -> Json:
    """<unk>, <s>, </s>, 256 bytes from 3 on, "▁" (259), "a" (260), "▁a" (261), "b" (262).

    Then every other character that these are spelled with.
    """
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocab |= {f"<0x{byte:02X}>": 3 + byte for byte in range(256)}
    vocab |= {"▁": 259, "a": 260, "▁a": 261, "b": 262}
    vocab |= {character: 263 + i for i, character in enumerate("</>snukx0123456789ABCDEF")}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "ignore_merges": False,
        "vocab": vocab,
        "merges": [["▁", "a"]],
    }
    steps = [{"type": "Prepend", "prepend": "▁"}, replace(" ", "▁")]
    normalizer = {"type": "Sequence", "normalizers": steps}
    added = [added_token(name, i, special=True) for i, name in enumerate(list(vocab)[:3])]
    return _tokenizer(model, changes, normalizer=normalizer, added_tokens=added)


def _tokenizer(model: Json, changes: Json, **defaults: Any) -> Json:
    parts = ("normalizer", "pre_tokenizer", "post_processor", "decoder", "truncation", "padding")
    empty: Json = {"version": "1.0", "added_tokens": [], **dict.fromkeys(parts)}
    model = model | changes.pop("model", {})
    return {**empty, **defaults, **changes, "model": model}


def added_token(content: str, token_id: int, **changes: bool) -> Json:
    """An added token as tokenizer.json holds it."""
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    return {"id": token_id, "content": content, **dict.fromkeys(flags, False), **changes}


def replace(old: str, new: str) -> Json:
    """A normalizer that replaces a string."""
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def split(pattern: str, behavior: str = "Isolated", invert: bool = False) -> Json:
    """A pre-tokenizer that splits at a regex."""
    regex = {"Regex": pattern}
    return {"type": "Split", "pattern": regex, "behavior": behavior, "invert": invert}


def sequence(*members: Json) -> Json:
    """Pre-tokenizers one after another."""
    return {"type": "Sequence", "pretokenizers": list(members)}


def as_file(tokenizer: Json, config: Json | None = None) -> TokenizerFile:
    """A tokenizer as it is loaded from a folder."""
    data = json.dumps(tokenizer, ensure_ascii=False).encode()
    return TokenizerFile("huggingface", data, origin="tokenizer.json", config=config or {})


@functools.cache
def sentencepiece_model(kind: str = "bpe", **options: Any) -> bytes:
    """A SentencePiece model of about 320 pieces with byte fallback, trained on two sentences."""
    import io

    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    sentences = ["The quick brown fox jumps over the lazy dog", "Ein Text mit äöü: f(x) + 1"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 20),
        model_writer=model,
        vocab_size=320,
        model_type=kind,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def documents(tokens: TokenBatch) -> list[list[int]]:
    """The ids of every document, as lists."""
    edges = zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)
    return [tokens.ids[start:stop].tolist() for start, stop in edges]


def batch_of(*lists: Sequence[int]) -> TokenBatch:
    """Lists of ids as a batch."""
    ids = np.array([i for ids in lists for i in ids], np.uint32)
    return TokenBatch(ids, offsets_from_lengths([len(ids) for ids in lists]))

"""Normalizers and pre-tokenizers as published tokenizers have them, and a model that shows both.

The model gives every character one of four ids: it may begin its piece, end it, do both or neither.
So two encodings are equal only if the pieces are.
"""

from __future__ import annotations

import base64
import functools
import io
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    as_file,
    byte_level_json,
    replace,
    sentencepiece_model,
    sequence,
    split,
)

from tokenmill.encode.engine import Reference
from tokenmill.encode.engines.chunks import MemoEngine
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.words.patterns import (
    DEEPSEEK3_SPLITS,
    LLAMA3_SPLIT,
    O200K_SPLIT,
    QWEN2_SPLIT,
    QWEN3_5_SPLIT,
    TEKKEN_SPLIT,
)

CACHE_BYTES = 1 << 30
CLIP_SPLIT = (
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
)
NFC, NFKC, NFKD, LOWERCASE, STRIP_ACCENTS, NMT = (
    {"type": kind} for kind in ("NFC", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")
)
WHITESPACE, WHITESPACE_SPLIT, BERT_SPLIT = (
    {"type": kind} for kind in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")
)
DIGITS: Json = {"type": "Digits", "individual_digits": True}
STRIP_RIGHT: Json = {"type": "Strip", "strip_left": False, "strip_right": True}
CHARACTERS = sorted(
    {chr(c) for c in range(0x21, 0x7F)}
    | set("▁ĠĊéäöüßſıΩж日本語中文ア한가กא½ﬁ…“’\u0301\u0338\u200d\ufffd\u00ad\u00a0\u3000😀 \t\n")
)
"""What has an id of its own; what has none is <unk>."""


def normalizers(*steps: Json) -> Json:
    """Normalizers one after another."""
    return {"type": "Sequence", "normalizers": list(steps)}


def replace_regex(pattern: str, content: str) -> Json:
    """A normalizer that replaces what a regex finds."""
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def metaspace(prepend_scheme: str = "always", **changes: Any) -> Json:
    """Spaces become ▁, with a split before each."""
    settings = {"replacement": "▁", "prepend_scheme": prepend_scheme, "split": True}
    return {"type": "Metaspace", **settings, **changes}


def punctuation(behavior: str = "Isolated") -> Json:
    """A pre-tokenizer that splits at punctuation."""
    return {"type": "Punctuation", "behavior": behavior}


def bert_normalizer(**changes: bool) -> Json:
    """As BERT's uncased models have it."""
    settings = {"clean_text": True, "handle_chinese_chars": True, "lowercase": True}
    return {"type": "BertNormalizer", "strip_accents": None, **settings, **changes}


def precompiled(charsmap: bytes | None = None) -> Json:
    """A normalizer with SentencePiece's table of characters; nmt_nfkc if none is given."""
    table = charsmap or charsmap_of(sentencepiece_model("unigram"))
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


@functools.cache
def custom_charsmap(*rules: tuple[str, str]) -> bytes:
    """A table that replaces what `rules` say."""
    sentencepiece = pytest.importorskip("sentencepiece")
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w") as file:
        for rule in rules:
            file.write("\t".join(" ".join(f"{ord(c):X}" for c in part) for part in rule) + "\n")
        file.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["some words to train on"] * 20),
            model_writer=model,
            vocab_size=40,
            hard_vocab_limit=False,
            normalization_rule_tsv=file.name,
            minloglevel=2,
        )
    return charsmap_of(model.getvalue())


def charsmap_of(model: bytes) -> bytes:
    """`normalizer_spec.precompiled_charsmap` of a SentencePiece model (fields 3 and 2)."""
    spec = dict(_fields(model))[3]
    return dict(_fields(spec))[2]


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and bytes of the fields of a protobuf message; of numbers, no bytes."""
    place = 0

    def varint() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte, place = message[place], place + 1
            value, shift = value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while place < len(message):
        number, wire_type = divmod(varint(), 8)
        if wire_type == 0:
            varint()
            continue
        size = {1: 8, 5: 4}.get(wire_type) or varint()
        yield number, message[place : place + size]
        place += size


def pipeline_json(normalizer: Json | None, pre_tokenizer: Json | None, *added_tokens: Json) -> Json:
    """A tokenizer of these steps, and the model that shows pieces. Added tokens get ids in turn."""
    vocab = {"<unk>": 0}
    for character in CHARACTERS:
        for token in (character, f"##{character}", f"{character}</w>", f"##{character}</w>"):
            vocab.setdefault(token, len(vocab))
    marks = {"continuing_subword_prefix": "##", "end_of_word_suffix": "</w>"}
    tokenizer = byte_level_json(
        normalizer=normalizer,
        pre_tokenizer=pre_tokenizer,
        decoder=None,
        added_tokens=[{**token, "id": len(vocab) + i} for i, token in enumerate(added_tokens)],
    )
    model = {"unk_token": "<unk>", "vocab": vocab, "merges": [], **marks}
    return {**tokenizer, "model": {**tokenizer["model"], **model}}


XLM_R_STEPS = (STRIP_RIGHT, replace_regex(" {2,}", "▁"))
QUOTES = (replace("``", '"'), replace("''", '"'))
PUBLISHED: dict[str, tuple[Json | None, Json]] = {
    "BERT": (bert_normalizer(), BERT_SPLIT),
    "BERT, cased": (bert_normalizer(lowercase=False), BERT_SPLIT),
    "words": (LOWERCASE, WHITESPACE),
    "words and marks": (NFC, sequence(WHITESPACE_SPLIT, punctuation())),
    "Unigram": (None, metaspace()),
    "Unigram, NFKC": (normalizers(NFKC, replace_regex(" {2,}", " ")), metaspace("first")),
    "CLIP": (
        normalizers(NFC, replace_regex(r"\s+", " "), LOWERCASE),
        sequence(split(CLIP_SPLIT, "Removed", True), BYTE_LEVEL),
    ),
    "DeBERTa": (
        normalizers(replace_regex(r"\s{2,}|[\n\r\t]", " "), NFC, STRIP_RIGHT),
        metaspace(),
    ),
    "GPT-2": (None, BYTE_LEVEL),
    "GPT-2 with a prefix space": (None, {**BYTE_LEVEL, "add_prefix_space": True}),
    "StarCoder": (None, sequence(DIGITS, BYTE_LEVEL)),
    "Falcon": (
        None,
        sequence(
            punctuation("Contiguous"),
            BYTE_LEVEL,
            {**DIGITS, "individual_digits": False},
            split("[0-9][0-9][0-9]"),
        ),
    ),
    "Llama 3": (None, sequence(split(LLAMA3_SPLIT), BYTES_ONLY)),
    "Qwen 2": (NFC, sequence(split(QWEN2_SPLIT), BYTES_ONLY)),
    "Qwen 3.5": (NFC, sequence(split(QWEN3_5_SPLIT), BYTES_ONLY)),
    "gpt-oss": (None, sequence(split(O200K_SPLIT), BYTES_ONLY)),
    "Mistral": (None, sequence(split(TEKKEN_SPLIT), BYTES_ONLY)),
    "DeepSeek-V3": (None, sequence(*map(split, DEEPSEEK3_SPLITS), BYTES_ONLY)),
}


def with_charsmap() -> dict[str, tuple[Json, Json]]:
    """Published pipelines around SentencePiece's table."""
    albert = (*QUOTES, NFKD, STRIP_ACCENTS, LOWERCASE, precompiled(), replace_regex(" {2,}", " "))
    return {
        "XLM-R and T5": (normalizers(precompiled(), *XLM_R_STEPS), metaspace()),
        "Pegasus": (
            normalizers(precompiled(), *XLM_R_STEPS),
            sequence(WHITESPACE_SPLIT, metaspace()),
        ),
        "ALBERT": (normalizers(*albert), metaspace("first")),
    }


def memo_and_reference(
    tokenizer: Json, control_tokens: bool = False, cache_bytes: int = CACHE_BYTES
) -> tuple[MemoEngine, Reference]:
    """The engine, and what it must agree with."""
    file = as_file(tokenizer)
    reference = load_reference(file, control_tokens)
    return MemoEngine(reference, file.data, control_tokens, cache_bytes), reference

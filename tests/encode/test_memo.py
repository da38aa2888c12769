"""memo against the reference: the same ids, whatever the table has seen, forgotten or mixed up."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import PUBLISHED, WHITESPACE, metaspace, pipeline_json, with_charsmap
from tokenizer_kit import (
    BYTE_LEVEL,
    Json,
    added_token,
    as_file,
    byte_level_json,
    documents,
    sentencepiece_json,
)

from tokenmill.encode.calibration import adversarial_texts, compare_tokens
from tokenmill.encode.encoder import Encoder
from tokenmill.encode.engine import Reference
from tokenmill.encode.memo import chunk_table
from tokenmill.encode.memo.chunk_table import MAX_KEPT_BYTES, ChunkTable
from tokenmill.encode.memo.engine import MemoEngine
from tokenmill.encode.selection import load_reference
from tokenmill.errors import EngineError
from tokenmill.records import Int64Array, TokenBatch, UInt64Array

CACHE_BYTES = 1 << 30
MASK = added_token("<mask>", 0, special=True, lstrip=True)
ADDED = (MASK, added_token("a.b", 0), added_token("Aß", 0, normalized=True))
ATOMS = [
    *(" ", " ", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\x00"),
    *("a", "B", "the", "Été", "e\u0301", "ß", "ſ", "İ", "0", "12345", "½", "x1", "Ⅷ"),
    *("'s", "'S", "'re", "s'", ".", "..", "a.b", "a.", "(x)", "``", "''", "=", "=\u0338", "_", "#"),
    *("\u0301", " \u0301", "\u00b4", "\u0600", "\u0601", "\u0d4e", "\u200d", "\ufdfa", "\ufffd"),
    *("中", "文 ", "日本語", "ア", "가", "\u1100\u1161", "😀", "\U00020000", "▁", "▁a", "\ufe70"),
    *("<mask>", "<mask", "mask>", "Aß", "aß", "AẞB", "a" * 127, "é" * 64, "b" * 129),
]
TEXTS = st.lists(st.lists(st.sampled_from(ATOMS), max_size=8).map("".join), max_size=4)


@functools.cache
def engines(name: str, control_tokens: bool) -> tuple[MemoEngine, Reference]:
    pipelines = PUBLISHED if name in PUBLISHED else with_charsmap()
    return engine(pipeline_json(*pipelines[name], *ADDED), control_tokens)


def engine(
    tokenizer: Json, control_tokens: bool = False, cache_bytes: int = CACHE_BYTES
) -> tuple[MemoEngine, Reference]:
    file = as_file(tokenizer)
    reference = load_reference(file, control_tokens)
    return MemoEngine(reference, file.data, control_tokens, cache_bytes), reference


@pytest.mark.parametrize("control_tokens", [False, True], ids=["text", "control"])
@pytest.mark.parametrize("name", [*PUBLISHED, "XLM-R and T5", "Pegasus", "ALBERT"])
def test_published_pipelines_give_the_ids_of_the_reference(name: str, control_tokens: bool) -> None:
    memo, reference = engines(name, control_tokens)
    texts = adversarial_texts(["<mask>", "a.b"])
    compare_tokens("memo", texts, memo.encode(texts), reference.encode(texts))


SOME = ["BERT", "words and marks", "Unigram, NFKC", "CLIP", "StarCoder", "gpt-oss", "DeepSeek-V3"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SOME), st.booleans(), TEXTS)
def test_any_text_has_the_ids_of_the_reference(
    name: str, control_tokens: bool, texts: list[str]
) -> None:
    memo, reference = engines(name, control_tokens)
    assert documents(memo.encode(texts)) == documents(reference.encode(texts))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["XLM-R and T5", "Pegasus", "ALBERT"]), TEXTS)
def test_any_text_has_the_ids_of_the_reference_behind_a_table_of_characters(
    name: str, texts: list[str]
) -> None:
    memo, reference = engines(name, True)
    assert documents(memo.encode(texts)) == documents(reference.encode(texts))

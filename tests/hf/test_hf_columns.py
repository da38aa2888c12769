"""Columns, dtypes, the loss of overlaps and sampled encodings: options that shape rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
from hf_kit import TEXTS, Letters, bare_tokenizer, contents, dataset_of, fast_tokenizer, options

from tokenmill.hf import CausalLMTokenizer

A, B, PAD = ord("a"), ord("b"), 1000
ALL = [
    "input_ids", "labels", "position_ids", "attention_mask", "seq_lengths", "cu_seqlens"
]  # fmt: skip


def made(length: int, **others: Any) -> CausalLMTokenizer:
    return CausalLMTokenizer(options(length, **others), Letters())


def file_bytes(dataset: datasets.Dataset) -> int:
    return sum(Path(file["filename"]).stat().st_size for file in dataset.cache_files)


def test_rows_have_the_columns_that_are_asked_for() -> None:
    rows = made(4, columns=ALL, dtype="int32").tokenize(dataset_of(["abab", "a"]))
    assert rows.column_names == ALL
    assert [rows.features[name].feature.dtype for name in ALL] == [
        "int32", "int32", "int32", "int8", "int32", "int32"
    ]  # fmt: skip
    assert list(rows) == [
        {
            "input_ids": [A, B, A, B],
            "labels": [A, B, A, B],
            "position_ids": [0, 1, 2, 3],
            "attention_mask": [1, 1, 1, 1],
            "seq_lengths": [4],
            "cu_seqlens": [0, 4],
        },
        {
            "input_ids": [A, PAD, PAD, PAD],
            "labels": [A, -100, -100, -100],
            "position_ids": [0, 0, 1, 2],
            "attention_mask": [1, 0, 0, 0],
            "seq_lengths": [1, 3],
            "cu_seqlens": [0, 1, 4],
        },
    ]


def test_int32_holds_the_same_numbers_in_about_half_the_space() -> None:
    texts = dataset_of(["abcd" * 5000] * 20)
    wide, narrow = made(500).tokenize(texts), made(500, dtype="int32").tokenize(texts)
    ids_only = made(500, dtype="int32", columns=["input_ids"]).tokenize(texts)
    assert contents(wide) == contents(narrow)
    assert ids_only.column_names == ["input_ids"]
    assert list(ids_only["input_ids"]) == list(wide["input_ids"])
    sizes = [file_bytes(rows) / (20 * 20_000) for rows in (wide, narrow, ids_only)]
    assert [round(size) for size in sizes] == [17, 9, 4]  # bytes a token


def test_a_stream_has_the_same_columns() -> None:
    texts = dataset_of(TEXTS)
    tokenizer = made(16, columns=ALL, dtype="int32", overlap=3)
    rows = list(tokenizer.tokenize(texts.to_iterable_dataset()).with_format(None))
    expected = list(tokenizer.tokenize(texts))
    plain = [{name: np.asarray(row[name]).tolist() for name in ALL} for row in rows]
    assert plain == expected


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_token_of_an_overlap_has_one_label(side: str) -> None:
    tokenizer = fast_tokenizer(1, padding_side=side)
    texts = dataset_of(TEXTS)
    both = CausalLMTokenizer(options(16, 5), tokenizer).tokenize(texts)
    once = CausalLMTokenizer(options(16, 5, overlap_in_loss=False), tokenizer).tokenize(texts)
    apart = CausalLMTokenizer(options(16, 0), tokenizer).tokenize(texts)
    assert once["input_ids"] == both["input_ids"]
    assert _labels(once) < _labels(both)
    # Each row that repeats loses 5 labels; what is left is each token of each document, and <s>.
    assert _labels(once) - len(once) == _labels(apart) - len(apart)


def test_labels_of_an_overlap_are_left_out_where_the_window_begins() -> None:
    (first, second) = made(4, overlap=2, overlap_in_loss=False).tokenize(dataset_of(["abcde"]))
    assert first["labels"] == [97, 98, 99, 100]
    assert second["input_ids"] == [99, 100, 101, PAD]
    assert second["labels"] == [-100, -100, 101, -100]


def _labels(rows: datasets.Dataset) -> int:
    return sum(label != -100 for row in rows["labels"] for label in row)


def test_sampled_encodings_follow_from_the_text_and_the_seed_alone() -> None:
    def rows(texts: list[str], **others: Any) -> list[Any]:
        tokenizer = CausalLMTokenizer(options(64, **others), bare_with_padding())
        return list(tokenizer.tokenize(dataset_of(texts))["input_ids"])

    plain = rows(TEXTS)
    sampled = rows(TEXTS, subword_regularisation=0.5, seed=1)
    assert sampled != plain
    assert sampled == rows(TEXTS, subword_regularisation=0.5, seed=1, batch_size=2)
    assert sampled != rows(TEXTS, subword_regularisation=0.5, seed=2)
    assert rows(TEXTS[::-1], subword_regularisation=0.5, seed=1, batch_size=1)[-1] == sampled[0]
    assert rows(TEXTS, subword_regularisation=0) == plain
    decoded = [bare_tokenizer().decode([i for i in row if i]).replace(" ", "") for row in sampled]
    assert "".join(decoded) == "".join(
        bare_tokenizer().decode([i for i in row if i]).replace(" ", "") for row in plain
    )


def bare_with_padding() -> Any:
    tokenizer = bare_tokenizer()
    tokenizer.enable_padding(pad_id=0, pad_token="<|endoftext|>")
    return tokenizer

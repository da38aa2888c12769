"""Iterable datasets stay lazy, can be resumed, and give the rows of other datasets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pytest
from hf_kit import TEXTS, Letters, contents, dataset_of, fast_tokenizer, options, recipe

from tokenmill.hf import CausalLMTokenizer


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenmill.hf.tokenizer.usable_cores", lambda: 2)


def stream(texts: list[Any], shards: int = 1) -> datasets.IterableDataset:
    numbers = list(range(len(texts)))
    return dataset_of(texts, number=numbers).to_iterable_dataset(num_shards=shards)


def made(**others: Any) -> CausalLMTokenizer:
    return CausalLMTokenizer(options(8, overlap=3, **others), fast_tokenizer(1))


def test_rows_are_those_of_the_usual_recipe() -> None:
    result = made(batch_size=2).tokenize(stream(TEXTS, shards=3))
    assert isinstance(result, datasets.IterableDataset)
    assert contents(result) == recipe(fast_tokenizer(1), TEXTS, 8, 3)
    row = next(iter(result))
    assert list(row) == ["input_ids", "attention_mask", "labels"]
    assert [row[name].dtype for name in row] == [np.int64, np.int8, np.int64]


def test_nothing_is_read_before_it_is_asked_for() -> None:
    read: list[int] = []

    def texts() -> Iterator[dict[str, str]]:
        for number in range(100):
            read.append(number)
            yield {"text": "The fox"}

    features = datasets.Features(text=datasets.Value("string"))
    source = datasets.IterableDataset.from_generator(texts, features=features)
    result = made(batch_size=10).tokenize(source)
    assert read == []
    next(iter(result))
    assert len(read) <= 20


def test_without_a_batch_size_the_first_documents_are_read_to_choose_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    read: list[int] = []

    def texts() -> Iterator[dict[str, str]]:
        for number in range(100):
            read.append(number)
            yield {"text": "abcd" * 25_000}

    features = datasets.Features(text=datasets.Value("string"))
    source = datasets.IterableDataset.from_generator(texts, features=features)
    tokenizer = CausalLMTokenizer(options(1000), Letters())
    result = tokenizer.tokenize(source)
    assert read == [0, 1, 2, 3]
    assert caplog.messages[-2:] == [
        "batch_size is 39 because of the rows made at a time: documents have 100000 bytes on "
        "average",
        "Performance configuration: batch_size=39, num_proc=1, parallelism=python_single_process",
    ]
    read.clear()
    next(iter(result))
    assert read == [*range(39)]


def test_the_columns_of_a_stream_may_be_unknown() -> None:
    source = datasets.IterableDataset.from_generator(lambda: iter([{"n": 1, "text": "a fox"}]))
    assert source.column_names is None
    assert contents(made().tokenize(source)) == recipe(fast_tokenizer(1), ["a fox"], 8, 3)


@pytest.mark.parametrize("taken", [0, 1, 5, 20])
def test_a_stream_is_resumed_at_the_row_where_it_stopped(taken: int) -> None:
    result = made(batch_size=2).tokenize(stream(TEXTS, shards=2))
    rows = iter(result)
    before = [next(rows) for _ in range(taken)]
    state = result.state_dict()
    again = made(batch_size=2).tokenize(stream(TEXTS, shards=2))
    again.load_state_dict(state)
    assert contents([*before, *again]) == recipe(fast_tokenizer(1), TEXTS, 8, 3)


def test_null_texts_and_batches_without_rows_are_passed_over() -> None:
    tokenizer = made(batch_size=2)
    result = tokenizer.tokenize(stream([None, None, "", "", "a", None]))
    assert contents(result) == recipe(fast_tokenizer(1), ["a"], 8, 3)
    summary = tokenizer.summary
    assert (summary.documents, summary.null, summary.empty, summary.rows) == (6, 3, 2, 1)


@pytest.mark.parametrize("kind", ["arrow", "numpy", "torch"])
def test_a_stream_may_have_any_format(kind: str) -> None:
    result = made().tokenize(stream(TEXTS).with_format(kind))
    assert contents(result) == recipe(fast_tokenizer(1), TEXTS, 8, 3)


def test_workers_of_a_data_loader_encode_by_themselves() -> None:
    torch = pytest.importorskip("torch")
    tokenizer = CausalLMTokenizer(options(8, num_proc=2, verbose_level="ERROR"), Letters())
    result = tokenizer.tokenize(stream(TEXTS, shards=2))
    next(iter(result))  # there is a pool in this process now, which a forked copy must not use
    loader = torch.utils.data.DataLoader(result.with_format("torch"), batch_size=4, num_workers=2)
    found = [row for batch in loader for row in batch["input_ids"].tolist()]
    assert sorted(found) == sorted(contents(result)["input_ids"])


@pytest.mark.parametrize("used_before", [False, True])
def test_forked_workers_encode_with_fast_engines(used_before: bool) -> None:
    torch = pytest.importorskip("torch")
    result = made().tokenize(stream(TEXTS * 20, shards=2))
    if used_before:
        next(iter(result))  # thread pools exist now, whose threads are not copied
    loader = torch.utils.data.DataLoader(result.with_format("torch"), batch_size=4, num_workers=2)
    found = [row for batch in loader for row in batch["input_ids"].tolist()]
    expected = recipe(fast_tokenizer(1), TEXTS * 20, 8, 3)
    assert sorted(found) == sorted(expected["input_ids"])

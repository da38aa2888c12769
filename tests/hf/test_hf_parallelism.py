"""Threads, processes, variables of the environment, and what may be overridden."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import transformers
from hf_kit import TEXTS, Letters, contents, dataset_of, fast_tokenizer, options, recipe

from tokenmill.core.errors import EngineError, UserError
from tokenmill.hf import CausalLMTokenizer
from tokenmill.hf.conventions import _faster_tokenizer

VARIABLES = ("TOKENIZERS_PARALLELISM", "RAYON_RS_NUM_THREADS", "RAYON_NUM_THREADS")


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many cores on any machine."""
    monkeypatch.setattr("tokenmill.hf.tokenizer.usable_cores", lambda: 4)
    monkeypatch.setattr("tokenmill.hf.workers.usable_cores", lambda: 4)


class Pids(Letters):
    """Every text is the number of the process that encodes it."""

    def encode(self, text: str) -> list[int]:
        return [os.getpid()]


def pids(num_proc: int | None, dataset: Any = None) -> set[int]:
    """The processes that encode a dataset."""
    made = CausalLMTokenizer(options(4, num_proc=num_proc), Pids())
    result = made.tokenize(dataset or dataset_of(["a"] * 64))
    return {row["input_ids"][0] for row in result}


def performance(caplog: pytest.LogCaptureFixture, tokenizer: Any, **others: Any) -> str:
    caplog.clear()
    CausalLMTokenizer(options(8, **others), tokenizer).tokenize(dataset_of(TEXTS))
    (line,) = [text for text in caplog.messages if text.startswith("Performance configuration: ")]
    return line.removeprefix("Performance configuration: ")


def test_the_log_tells_how_a_tokenizer_runs(caplog: pytest.LogCaptureFixture) -> None:
    fast, slow = fast_tokenizer(), Letters()
    internal = "batch_size=50, parallelism=fast_tokenizer_internal"
    assert performance(caplog, fast, batch_size=50) == internal
    assert performance(caplog, fast, batch_size=50, num_proc=1) == internal
    workers = "batch_size=50, num_proc={}, parallelism=python_multiprocessing"
    assert performance(caplog, slow, batch_size=50, num_proc=4) == workers.format(4)
    assert performance(caplog, slow, batch_size=50) == workers.format(2)
    alone = "batch_size=50, num_proc=1, parallelism=python_single_process"
    assert performance(caplog, slow, batch_size=50, num_proc=1) == alone


def test_a_fast_tokenizer_ignores_num_proc_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    made = CausalLMTokenizer(options(8, num_proc=4), fast_tokenizer())
    assert contents(made.tokenize(dataset_of(TEXTS))) == recipe(fast_tokenizer(), TEXTS, 8, 0)
    assert "num_proc=4 is ignored" in caplog.text
    assert "parallelism=fast_tokenizer_internal" in caplog.text


def test_a_slow_tokenizer_runs_in_as_many_processes_as_asked_or_half_the_cores() -> None:
    assert pids(1) == {os.getpid()}
    for num_proc, expected in ((3, 3), (None, 2)):
        found = pids(num_proc)
        assert os.getpid() not in found
        assert 1 <= len(found) <= expected


def test_a_slow_tokenizer_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    made = CausalLMTokenizer(options(8), Letters())
    for _ in range(2):
        made.tokenize(dataset_of(["a"]))
    warnings = [record for record in caplog.records if "Using slow tokenizer" in record.message]
    assert len(warnings) == 1
    assert warnings[0].levelno == logging.WARNING
    assert "Letters" in warnings[0].message


@pytest.mark.parametrize("num_proc", [1, 2])
def test_a_slow_tokenizer_of_transformers_gives_its_own_ids(num_proc: int) -> None:
    slow = transformers.ByT5Tokenizer()
    made = CausalLMTokenizer(options(8, overlap=2, num_proc=num_proc), slow)
    rows = contents(made.tokenize(dataset_of(TEXTS)))
    windows = []
    for text in TEXTS:
        ids = slow.encode(text, add_special_tokens=False)
        starts = range(0, max(len(ids) - 2, 1), 5)  # seven of a text, then </s>
        windows += [[*ids[start : start + 7], slow.eos_token_id] for start in starts]
    assert rows["input_ids"] == [window + [0] * (8 - len(window)) for window in windows]
    assert np.sum(rows["attention_mask"], axis=1).tolist() == [len(window) for window in windows]


def test_rows_do_not_depend_on_the_number_of_processes() -> None:
    dataset = dataset_of([*TEXTS, None, ""] * 20)
    results = [
        contents(CausalLMTokenizer(options(8, num_proc=n), Letters()).tokenize(dataset))
        for n in (1, 2, 5)
    ]
    assert results[0] == results[1] == results[2]


def test_a_worker_that_dies_ends_the_run() -> None:
    here = os.getpid()

    class Dying(Letters):
        def encode(self, text: str) -> list[int]:
            if text == "die" and os.getpid() != here:
                os._exit(1)
            return super().encode(text)

    made = CausalLMTokenizer(options(8, num_proc=2), Dying())
    with pytest.raises(EngineError, match="worker process died"):
        made.tokenize(dataset_of(["a", "die"] * 10))
    assert len(made.tokenize(dataset_of(["a"]))) == 1


def test_an_error_of_the_tokenizer_comes_out_of_a_worker() -> None:
    class Failing(Letters):
        def encode(self, text: str) -> list[int]:
            if text == "fail":
                raise RuntimeError("broken")
            return super().encode(text)

    made = CausalLMTokenizer(options(8, num_proc=2), Failing())
    with pytest.raises(EngineError, match="broken"):
        made.tokenize(dataset_of(["a", "fail"] * 10))


class Recording(Letters):
    """Notes the environment in which it encodes."""

    def __init__(self) -> None:
        self.seen: dict[str, str | None] = {}

    def encode(self, text: str) -> list[int]:
        self.seen = {name: os.environ.get(name) for name in VARIABLES}
        if text == "fail":
            raise RuntimeError("broken")
        return super().encode(text)


@pytest.mark.parametrize(
    ("before", "threads"),
    [
        ({}, "4"),
        ({"TOKENIZERS_PARALLELISM": "false"}, "4"),  # as often set against a warning about forks
        ({"TOKENIZERS_PARALLELISM": "false", "RAYON_RS_NUM_THREADS": "9"}, "9"),
    ],
)
def test_variables_are_set_for_the_run_only(
    monkeypatch: pytest.MonkeyPatch, before: dict[str, str], threads: str
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in before.items():
        monkeypatch.setenv(name, value)
    slow = Recording()
    made = CausalLMTokenizer(options(8, num_proc=1), slow)
    made.tokenize(dataset_of(["a"]))
    assert slow.seen == dict(zip(VARIABLES, ("true", threads, threads), strict=True))
    assert {name: os.environ[name] for name in VARIABLES if name in os.environ} == before
    with pytest.raises(EngineError):
        made.tokenize(dataset_of(["fail"]))
    assert {name: os.environ[name] for name in VARIABLES if name in os.environ} == before


class TwoProcesses(CausalLMTokenizer):
    """Decides how many processes there are."""

    def _get_optimal_num_proc(self) -> int:
        return 2


class Negated(CausalLMTokenizer):
    """Makes other rows, in whatever process."""

    def _tokenize_function(self, batch: Any) -> Any:
        columns = super()._tokenize_function(batch)
        return {**columns, "labels": -columns["labels"]}


class Both(TwoProcesses, Negated):
    """Overrides both."""


KINDS = ("Dataset", "DatasetDict", "IterableDataset", "IterableDatasetDict")


def kinds_of(dataset: datasets.Dataset) -> dict[str, Any]:
    """One dataset as all that can be tokenized, with a way to its rows."""
    return {
        "Dataset": (dataset, lambda made: made),
        "DatasetDict": (datasets.DatasetDict(a=dataset), lambda made: made["a"]),
        "IterableDataset": (dataset.to_iterable_dataset(), lambda made: made),
        "IterableDatasetDict": (
            datasets.IterableDatasetDict(a=dataset.to_iterable_dataset()),
            lambda made: made["a"],
        ),
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tokenizer", [fast_tokenizer(), Letters()], ids=["fast", "slow"])
def test_what_a_subclass_overrides_has_effect_everywhere(tokenizer: Any, kind: str) -> None:
    dataset, rows = kinds_of(dataset_of(TEXTS * 3))[kind]
    config = options(8, num_proc=1)
    plain = contents(rows(CausalLMTokenizer(config, tokenizer).tokenize(dataset)))
    negated = {**plain, "labels": [[-label for label in row] for row in plain["labels"]]}
    assert contents(rows(TwoProcesses(config, tokenizer).tokenize(dataset))) == plain
    assert contents(rows(Negated(config, tokenizer).tokenize(dataset))) == negated
    assert contents(rows(Both(config, tokenizer).tokenize(dataset))) == negated


@pytest.mark.parametrize("kind", KINDS)
def test_an_overridden_number_of_processes_is_what_there_are(kind: str) -> None:
    dataset, rows = kinds_of(dataset_of(["a"] * 64))[kind]
    made = TwoProcesses(options(4, num_proc=1), Pids())
    found = {int(row["input_ids"][0]) for row in rows(made.tokenize(dataset))}
    assert os.getpid() not in found
    assert 1 <= len(found) <= 2


def test_one_object_tokenizes_datasets_of_all_kinds_one_after_another() -> None:
    tokenizer = Negated(options(8, num_proc=2), Letters())
    dataset = dataset_of(TEXTS * 3)
    lazy = tokenizer.tokenize(dataset.to_iterable_dataset())
    rows = iter(lazy)
    next(rows)  # workers of the iterable dataset are there, whose forked copies answer nobody
    eager = contents(tokenizer.tokenize(dataset))
    assert contents(lazy) == eager
    assert 1 + len(list(rows)) == len(eager["labels"])


@pytest.mark.parametrize("num_proc", [1, 2])
def test_documents_without_tokens_are_counted_where_a_subclass_makes_the_rows(
    num_proc: int,
) -> None:
    tokenizer = Negated(options(8, num_proc=num_proc), Letters())
    tokenizer.tokenize(dataset_of(["a", "", None, "b"] * 10))
    summary = tokenizer.summary
    assert (summary.documents, summary.null, summary.empty, summary.rows) == (40, 10, 10, 20)


def test_a_function_assigned_to_an_instance_has_effect() -> None:
    made = CausalLMTokenizer(options(4), fast_tokenizer())
    row = np.arange(4)[None]
    made._tokenize_function = lambda batch: {  # type: ignore[method-assign]
        "input_ids": row,
        "attention_mask": np.ones_like(row),
        "labels": row,
    }
    result = made.tokenize(dataset_of(["a", "b"]))
    assert contents(result)["input_ids"] == [[0, 1, 2, 3]]
    assert made.summary.tokens == 4


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"input_ids": [[1, 2]], "attention_mask": [[1, 1]], "labels": [[1, 2]]},
        {"input_ids": [[1] * 4], "attention_mask": [[1] * 4] * 2, "labels": [[1] * 4]},
    ],
)
def test_a_function_that_returns_no_rows_is_refused(columns: Any) -> None:
    made = CausalLMTokenizer(options(4), fast_tokenizer())
    made._tokenize_function = lambda batch: columns  # type: ignore[method-assign]
    with pytest.raises(UserError, match="returned columns of the wrong shape"):
        made.tokenize(dataset_of(["a"]))


def test_since_transformers_5_the_plain_name_is_the_fast_one(tmp_path: Path) -> None:
    class Mine(transformers.BertTokenizerLegacy):  # type: ignore[misc, name-defined]
        pass

    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    legacy = transformers.BertTokenizerLegacy(str(tmp_path / "vocab.txt"))
    assert _faster_tokenizer(legacy) == "transformers.BertTokenizer"
    assert _faster_tokenizer(Mine(str(tmp_path / "vocab.txt"))) == "transformers.BertTokenizer"
    assert _faster_tokenizer(transformers.CanineTokenizer()) == ""
    assert _faster_tokenizer(Letters()) == ""

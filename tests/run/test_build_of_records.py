"""Builds of records that Python holds: data sets of `datasets`, and iterables."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import documents, wait_for

import tokenmill
from tokenmill.core.errors import OutputConflictError, UserError

TEXTS = [f"text number {n}, with some words" for n in range(40)]
RECORDS = [{"text": text, "id": f"id-{n}", "n": n} for n, text in enumerate(TEXTS)]
again = pytest.mark.filterwarnings("ignore:records of an iterable have no fingerprint")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def build(tokenizer_path: Path, tmp_path: Path) -> Callable[..., Any]:
    def build(inputs: Any, **options: Any) -> Any:
        return tokenmill.build(inputs, tokenizer_path, tmp_path / "out", workers=1, **options)

    return build


@pytest.fixture
def expected(reference: Callable[[str], list[int]], tokenizer_path: Path) -> list[list[int]]:
    eos = json.loads(tokenizer_path.read_bytes())["added_tokens"][0]["id"]
    return [[*reference(text), eos] for text in TEXTS]


def test_a_dataset_is_read_in_its_own_order_and_found_again(
    build: Callable[..., Any], expected: list[list[int]], tmp_path: Path
) -> None:
    data = datasets.Dataset.from_list(RECORDS).select(range(39, -1, -1))
    assert build(data, id_field="id", keep=["n"]).snapshot is not None
    assert documents(tmp_path / "out") == expected[::-1]
    table = pq.read_table(next((tmp_path / "out" / "documents").iterdir()))
    assert table.column("id").to_pylist()[:2] == ["id-39", "id-38"]
    assert table.column("column.n").to_pylist()[:2] == ["39", "38"]
    assert table.column("position").to_pylist() == [*range(40)], "rows of the data set"
    assert table.column("source").to_pylist()[0] == "train.arrow"
    assert build(data, id_field="id", keep=["n"]).snapshot is None, "nothing to do"
    assert tokenmill.verify(tmp_path / "out", against_sources=True).compared_documents == 40
    with pytest.raises(OutputConflictError):
        build(data.select(range(20)), id_field="id", keep=["n"])


def test_templates_and_transforms_work_on_datasets(
    build: Callable[..., Any], reference: Callable[[str], list[int]], tmp_path: Path
) -> None:
    data = datasets.Dataset.from_list(RECORDS, split=datasets.NamedSplit("train[:10%]"))
    build(data, text_template="{id}: {text}")
    first = documents(tmp_path / "out")
    assert first[3][:-1] == reference(f"id-3: {TEXTS[3]}")
    build(data, transform=lambda record: f"{record['id']}: {record['text']}", overwrite=True)
    assert documents(tmp_path / "out") == first


def test_of_several_splits_the_one_for_training_is_read(
    build: Callable[..., Any], expected: list[list[int]], tmp_path: Path
) -> None:
    train, test = datasets.Dataset.from_list(RECORDS), datasets.Dataset.from_list(RECORDS[:2])
    with pytest.warns(UserWarning, match="only the split 'train' is read; ignored: test") as told:
        build(datasets.DatasetDict(train=train, test=test))
    assert told[0].filename == __file__
    assert documents(tmp_path / "out") == expected
    build(datasets.DatasetDict(train=train))
    with pytest.raises(UserError, match="several splits") as caught:
        build(datasets.DatasetDict(a=train, b=test))
    assert "its splits are a, b" in caught.value.why


@pytest.mark.parametrize("kind", ["dicts", "generator", "texts", "iterable dataset"])
def test_an_iterable_is_read_once_and_said_to_be_without_a_fingerprint(
    kind: str, build: Callable[..., Any], expected: list[list[int]], tmp_path: Path
) -> None:
    def generate() -> Iterator[dict[str, Any]]:
        yield from RECORDS

    inputs: dict[str, Any] = {
        "dicts": RECORDS,
        "generator": generate(),
        "texts": iter(TEXTS),
        "iterable dataset": datasets.IterableDataset.from_generator(generate),
    }
    with pytest.warns(UserWarning, match="have no fingerprint") as told:
        build(inputs[kind])
    assert told[0].filename == __file__
    assert documents(tmp_path / "out") == expected
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "cache") == ["out"]


@again
def test_the_same_iterable_again_has_nothing_to_do_and_another_is_refused(
    build: Callable[..., Any], tmp_path: Path
) -> None:
    build(RECORDS)
    assert build(RECORDS).snapshot is None
    with pytest.raises(OutputConflictError):
        build([*RECORDS[:-1], {**RECORDS[-1], "text": TEXTS[-1].upper()}])


@again
def test_an_error_of_an_iterable_keeps_its_traceback_and_leaves_nothing(
    build: Callable[..., Any], tmp_path: Path
) -> None:
    def generate() -> Iterator[dict[str, Any]]:
        yield RECORDS[0]
        raise KeyError("of the iterable")

    with pytest.raises(KeyError, match="of the iterable") as caught:
        build(generate())
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "generate"
    assert [*tmp_path.iterdir()] == []


@again
def test_half_of_a_surrogate_pair_costs_its_record_alone(
    build: Callable[..., Any], expected: list[list[int]], tmp_path: Path
) -> None:
    report = build([{"text": "\ud800"}, *RECORDS], max_bad=0.1)
    assert report.manifest.totals.rejected == {"lone-surrogate": 1}
    assert documents(tmp_path / "out") == expected


@again
@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ({"text": "a"}, "a dict cannot be an input"),
        ([{"text": "a"}, 7], "a record must be a dict or a text, got int"),
        ([{"text": object()}], "JSON cannot represent"),
        (pa.table({"text": ["a"]}), "a table in memory cannot be an input"),
        (pa.table({"text": ["a"]}).to_pandas(), "a table in memory cannot be an input"),
        (7, "an object of type int cannot be an input"),
        (datasets.Dataset.from_dict({"content": ["a"]}), "cannot find the field 'text'"),
        (datasets.Dataset.from_dict({"text": ["a"]}).with_transform(dict), "has a transform"),
    ],
)
def test_what_is_no_input(inputs: Any, what: str, build: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=what):
        build(inputs)


def test_names_are_still_names(build: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="an input does not exist"):
        build(["a.jsonl"])
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    assert build(tmp_path.glob("*.jsonl")).manifest.totals.documents == 1
    with pytest.raises(UserError, match="inputs must be names of files"):
        tokenmill.estimate(datasets.Dataset.from_list(RECORDS), "gpt2")  # type: ignore[arg-type]


SCRIPT = """\
import os, sys, datasets, tokenmill
datasets.config.HF_DATASETS_CACHE = sys.argv[3]
data = datasets.Dataset.from_dict({"text": [f"text number {n}" for n in range(20_000)]})

def through(record):
    assert record["text"] != "text number 19999" or os.path.exists(sys.argv[4]) or wait()
    return record["text"]

def wait():
    import time
    open(sys.argv[4] + ".waits", "w").close()
    while True:
        time.sleep(0.1)

options = {"transform": through} if sys.argv[5:] else {}
report = tokenmill.build(data, sys.argv[1], sys.argv[2], workers=1, **options)
print(report.manifest.totals.documents, report.reused is not None, report.manifest.dataset_id)
"""


def test_a_killed_build_of_a_dataset_resumes(tokenizer_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    go = tmp_path / "go"

    def start(out: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(script), str(tokenizer_path), str(tmp_path / out)]
        command += [str(tmp_path / "cache"), str(go), "slow"]
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    killed = start("out")
    wait_for((tmp_path / "go.waits").exists, 60)
    files = [*(tmp_path / "cache").rglob("*.arrow")]
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "out" / "manifest.json").exists()
    go.touch()
    resumed, _ = start("out").communicate(timeout=60)
    whole, _ = start("whole").communicate(timeout=60)
    assert resumed.split()[0] == whole.split()[0] == "20000"
    assert resumed.split()[2] == whole.split()[2]
    assert [*(tmp_path / "cache").rglob("*.arrow")] == files, "the copy of the rows was found"


@again
@pytest.mark.parametrize("options", [{}, {"text_template": "{text}"}])
def test_no_more_is_read_of_an_iterable_than_is_asked_for(
    options: dict[str, Any], build: Callable[..., Any], expected: list[list[int]], tmp_path: Path
) -> None:
    endless = ({"text": text} for text in itertools.cycle(["", *TEXTS[:2]]))
    report = build(endless, max_documents=3, **options)
    assert documents(tmp_path / "out") == [expected[0], expected[1], expected[0]]
    assert report.manifest.totals.empty == 2
    assert next(endless) == {"text": TEXTS[1]}


@again
def test_arrays_and_numbers_of_numpy_are_kept_whole(
    build: Callable[..., Any], tmp_path: Path
) -> None:
    record = {"text": "a", "a": np.arange(2_000), "n": np.int64(7), "x": np.float32(0.5)}
    build([record], keep=["a", "n", "x"])
    table = pq.read_table(next((tmp_path / "out" / "documents").iterdir()))
    values = [table.column(f"column.{name}")[0].as_py() for name in "anx"]
    assert [json.loads(value) for value in values] == [[*range(2_000)], 7, 0.5]

"""`cp VIEW OUT` makes a dataset of the chosen documents, the same that a build of them makes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tokenmill
from conftest import Printed
from load.loading_kit import PAD, write_tokenizer
from tokenmill import Dataset
from tokenmill.cli import main
from tokenmill.core.errors import OutputConflictError, UserError, VerificationError
from tokenmill.read import units
from tokenmill.reports.lengths.counts import lengths_of_dataset
from tokenmill.reports.verify import verify
from tokenmill.store.copying import view_copy
from view_kit import documents_of, view_of

OPTIONS: dict[str, Any] = {"workers": 1, "eos": "<eos>", "pad": "<pad>", "validation": 0.2}
KILLED = """
import os, sys
from tokenmill.store.copying import copy, view_copy

whole = view_copy.write_manifest
view_copy.write_manifest = lambda *arguments: os.kill(os.getpid(), 9)
copy.copy(sys.argv[1], sys.argv[2])
"""


def text(number: int) -> str:
    return str(number % 9 + 1) * (number * 7 % 5 + 1)


def build(folder: Path, tokenizer: Path, files: dict[str, list[int]], **options: Any) -> Dataset:
    """A dataset of files with the texts of these numbers, their ids, and a mask for some."""
    folder.mkdir()
    for name, numbers in files.items():
        rows = [
            {"text": text(n), "id": f"id{n}", "mask": [[0, 1]] * (n % 3 == 0), "kind": "ab"[n % 2]}
            for n in numbers
        ]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = OPTIONS | {"id_field": "id", "no_loss": "mask", "keep": ["kind"]} | options
    paths = [folder / name for name in files]
    return tokenmill.build(paths, tokenizer, folder / "corpus", **made).dataset


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("copied") / "tokenizer.json")


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory, tokenizer: Path) -> list[Dataset]:
    """Documents 0 to 79 in small shards, two of three sources with the same name."""
    folder = tmp_path_factory.mktemp("parents")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 1000)
        old = build(
            folder / "old", tokenizer, {"x.jsonl": [*range(30)], "y.jsonl": [*range(30, 50)]}
        )
        new = build(folder / "new", tokenizer, {"x.jsonl": [*range(50, 80)]})
    assert len(old.shards) + len(new.shards) > 4
    return [old, new]


def rows_of(dataset: Dataset) -> list[dict[str, Any]]:
    """The rows of the documents tables of what is chosen, without what depends on the file."""
    rows = []
    for shard in dataset.shards:
        rows += shard.documents().take(shard.chosen).to_pylist()
    return [{name: row[name] for name in row if name not in ("source", "position")} for row in rows]


def test_the_copy_of_a_shard_has_the_bytes_of_a_build_of_its_documents(
    tmp_path: Path, tokenizer: Path
) -> None:
    parent = build(tmp_path / "parent", tokenizer, {"x.jsonl": [*range(40)]})
    chosen = [number for number in range(40) if number % 7 in (0, 1, 5)]
    view = view_of(tmp_path / "view", [parent], chosen)
    report = tokenmill.copy(view, tmp_path / "copy", verify=True)
    wanted = build(tmp_path / "wanted", tokenizer, {"x.jsonl": chosen})
    copied = tokenmill.open(tmp_path / "copy")
    assert report.dataset_id == wanted.manifest.dataset_id
    for part in ("bin", "idx", "xxh3"):
        name = f"tokens/00000000-000000.{part}"
        assert (copied.folder / name).read_bytes() == (wanted.folder / name).read_bytes()
    assert rows_of(copied) == rows_of(wanted)
    assert verify(copied.folder).documents == len(chosen)


def test_a_copy_of_several_datasets_has_their_documents_in_order_and_no_empty_shard(
    tmp_path: Path, parents: list[Dataset], capsys: Printed
) -> None:
    chosen = [number for number in range(80) if number % 3 and not 12 < number < 50]
    view = view_of(tmp_path / "view", parents, chosen)
    tokenmill.pack(view, sequence_length=8)
    assert main(["cp", str(view.folder), str(tmp_path / "copy")]) == 0
    copied = tokenmill.open(tmp_path / "copy")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(f"0 plans (id {copied.manifest.dataset_id})")
    assert lines[2] == "left out: 1 plan, because documents have other numbers in the copy"
    assert copied.plans == []
    assert documents_of(copied) == documents_of(view)
    assert rows_of(copied) == rows_of(view)
    assert len(copied.shards) == sum(shard.num_documents > 0 for shard in view.shards)
    assert len(copied.shards) < len(view.shards)
    assert [source.counts for source in copied.manifest.sources] == [
        source.counts for source in view.manifest.sources
    ]
    verify(copied.folder)
    assert main(["inspect", str(copied.folder)]) == 0
    assert main(["cp", str(view.folder), str(tmp_path / "copy")]) == 0
    assert "copied 0 files" in capsys.readouterr().out


def test_fields_that_only_one_dataset_keeps_are_empty_for_the_others(
    tmp_path: Path, tokenizer: Path
) -> None:
    one = build(tmp_path / "one", tokenizer, {"x.jsonl": [0, 1]}, keep=["kind"])
    two = build(tmp_path / "two", tokenizer, {"x.jsonl": [2, 3]}, keep=["id"])
    view = view_of(tmp_path / "view", [one, two], [1, 2])
    tokenmill.copy(view, tmp_path / "copy")
    copied = tokenmill.open(tmp_path / "copy")
    assert copied.policies.read.keep == ["kind", "id"]
    kept = [(row["column.kind"], row["column.id"]) for row in rows_of(copied)]
    assert kept == [("b", None), (None, "id2")]
    verify(copied.folder)


def test_a_copy_has_no_sources_to_compare_with(tmp_path: Path, parents: list[Dataset]) -> None:
    view = view_of(tmp_path / "view", parents, [3, 60])
    tokenmill.copy(view, tmp_path / "copy")
    with pytest.raises(UserError, match="a copy of a view has no sources of its own") as caught:
        verify(tmp_path / "copy", against_sources=True)
    assert str(parents[0].folder) in str(caught.value.hint)


def test_a_killed_copy_leaves_no_dataset_and_the_next_one_cleans_up(
    tmp_path: Path, parents: list[Dataset]
) -> None:
    view = view_of(tmp_path / "view", parents, [1, 2, 70])
    arguments = [sys.executable, "-c", KILLED, str(view.folder), str(tmp_path / "copy")]
    killed = subprocess.run(arguments, env=os.environ, check=False)
    assert killed.returncode == -signal.SIGKILL
    left = [path.name for path in tmp_path.iterdir() if "copy" in path.name]
    assert left != ["copy"]
    assert len(left) == 1
    tokenmill.copy(view, tmp_path / "copy")
    assert documents_of(tokenmill.open(tmp_path / "copy")) == documents_of(view)
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == ["copy"]


def test_a_view_is_not_copied_over_files_into_itself_or_to_a_bucket(
    tmp_path: Path, parents: list[Dataset]
) -> None:
    view = view_of(tmp_path / "view", parents, [1, 2])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    with pytest.raises(OutputConflictError, match="the destination is not empty"):
        tokenmill.copy(view, tmp_path / "full")
    other = view_of(tmp_path / "other", parents, [1, 3])
    tokenmill.copy(view, tmp_path / "copy")
    with pytest.raises(OutputConflictError, match="the destination is not empty"):
        tokenmill.copy(other, tmp_path / "copy")
    for place in (view.folder / "copy", parents[1].folder / "copy"):
        with pytest.raises(UserError, match="a dataset cannot be copied into itself"):
            tokenmill.copy(view, place)
    with pytest.raises(UserError, match="a view can only be copied to a folder") as caught:
        tokenmill.copy(view, "s3://bucket/view")
    assert caught.value.hint == (
        "copy it to a folder first, then that one: tokenmill cp FOLDER s3://bucket/view"
    )


def test_a_damaged_dataset_of_a_view_is_not_copied(tmp_path: Path, tokenizer: Path) -> None:
    parent = build(tmp_path / "parent", tokenizer, {"x.jsonl": [*range(9)]})
    view = view_of(tmp_path / "view", [parent], [1, 5])
    path = parent.folder / "tokens" / "00000000-000000.bin"
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerificationError, match="a file of the dataset is damaged"):
        tokenmill.copy(view, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_batches_of_documents_are_bounded() -> None:
    lengths = np.array([3, 3, 9, 1, 1, 1, 1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_copy, "TOKENS_AT_ONCE", 6)
        patch.setattr(view_copy, "DOCUMENTS_AT_ONCE", 3)
        assert list(view_copy._batches(lengths)) == [(0, 2), (2, 3), (3, 6), (6, 7)]


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_views_of_views_give_exactly_the_chosen_documents(
    tmp_path_factory: pytest.TempPathFactory, parents: list[Dataset], data: st.DataObject
) -> None:
    """Of any datasets, any documents, chosen in up to three steps."""
    folder = tmp_path_factory.mktemp("view")
    chain = data.draw(st.lists(st.sampled_from(parents), min_size=1, max_size=3))
    wanted = [document for parent in chain for document in documents_of(parent)]
    numbers, found = set(range(len(wanted))), chain
    for step in range(data.draw(st.integers(1, 3))):
        some = data.draw(st.sets(st.sampled_from(sorted(numbers)), min_size=1))
        asked = some | (set(range(len(wanted))) - numbers)  # what is left out stays out
        numbers = some
        found = [view_of(folder / str(step), found, asked, f"step {step}")]
    [view] = found
    model = [wanted[number] for number in sorted(numbers)]
    assert view.question == [f"step {number}" for number in range(len(view.question))]
    assert view.num_documents == len(model)
    assert view.num_tokens == sum(map(len, model))
    counts = lengths_of_dataset(view, lambda *_: None)
    assert (counts.num_documents, counts.num_tokens) == (len(model), sum(map(len, model)))
    assert documents_of(view) == model
    tokenmill.pack(view, sequence_length=8, packing="next-fit", subset="all", name="p")
    batches = view.batches("p", batch_size=1, shuffle="none")
    tokens = [batch["input_ids"][batch["input_ids"] != PAD] for batch in batches]
    assert np.concatenate(tokens).tolist() == [token for each in model for token in each]
    tokenmill.copy(view, folder / "copy")
    copied = tokenmill.open(folder / "copy")
    assert documents_of(copied) == model
    verify(view.folder)
    verify(copied.folder)

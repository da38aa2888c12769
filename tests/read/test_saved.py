"""Folders of `datasets.save_to_disk`: their rows in their order, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tokenmill
from tokenmill.core.errors import DataError, UserError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.places.folders import saved_files
from tokenmill.read.sources import find_sources

datasets = pytest.importorskip("datasets")

TEXTS = [f"text {number}" for number in range(30)]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Three Arrow files."""
    rows = datasets.Dataset.from_dict({"text": TEXTS, "n": list(range(30))})
    rows.save_to_disk(tmp_path / "saved", num_shards=3)
    return tmp_path / "saved"


def texts_below(folder: Path) -> list[str]:
    sources = find_sources([str(folder)])
    reader = Reader(sources, Fields(), 1 << 16)
    batches = [batch for source in sources for batch in reader.read(Extent(source.index))]
    return [text for batch in batches for text in batch.texts]


def test_a_saved_data_set_is_its_rows(saved: Path) -> None:
    assert texts_below(saved) == TEXTS
    names = [f"data-0000{number}-of-00003.arrow" for number in range(3)]
    assert [source.name for source in find_sources([str(saved)])] == names


def test_files_are_read_in_the_order_of_the_state(saved: Path) -> None:
    state = json.loads((saved / "state.json").read_text())
    state["_data_files"].reverse()
    (saved / "state.json").write_text(json.dumps(state))
    assert texts_below(saved) == TEXTS[20:] + TEXTS[10:20] + TEXTS[:10]


def test_files_that_the_state_does_not_name_are_no_rows(saved: Path) -> None:
    (saved / "cache-0123.arrow").write_bytes((saved / "data-00000-of-00003.arrow").read_bytes())
    assert texts_below(saved) == TEXTS


def test_selected_and_shuffled_rows_are_saved_as_they_are(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": TEXTS}).shuffle(seed=1).select(range(5))
    rows.save_to_disk(tmp_path / "saved")
    assert texts_below(tmp_path / "saved") == rows["text"][:]


def test_a_folder_of_saved_data_sets_is_all_of_them(saved: Path) -> None:
    datasets.Dataset.from_dict({"text": ["z"]}).save_to_disk(saved.parent / "zz")
    assert texts_below(saved.parent) == [*TEXTS, "z"]


def test_a_build_of_a_saved_data_set_holds_its_texts(
    saved: Path, tmp_path: Path, tokenizer_path: Path, reference: Callable[[str], list[int]]
) -> None:
    tokenmill.build([saved], tokenizer_path, tmp_path / "out", workers=1)
    (shard,) = tokenmill.open(tmp_path / "out").shards
    found = [shard.document(index).tolist() for index in range(len(TEXTS))]
    assert found == [[*reference(text), 0] for text in TEXTS]
    assert tokenmill.verify(tmp_path / "out", against_sources=True).compared_documents == 30


def test_one_split_is_taken_and_several_are_refused(tmp_path: Path) -> None:
    rows = datasets.Dataset.from_dict({"text": TEXTS})
    datasets.DatasetDict({"train": rows}).save_to_disk(tmp_path / "one")
    assert texts_below(tmp_path / "one") == TEXTS
    datasets.DatasetDict({"train": rows, "test": rows}).save_to_disk(tmp_path / "two")
    with pytest.raises(UserError) as raised:
        find_sources([str(tmp_path / "two")])
    assert raised.value.why == "the splits are train, test"
    assert raised.value.hint == f"name the folder of one of them: {tmp_path / 'two/train'}"
    assert texts_below(tmp_path / "two/test") == TEXTS


@pytest.mark.parametrize("name", ["../data.arrow", "/etc/passwd", "..", "", "a\\b", "a\n"])
def test_a_state_never_leads_out_of_the_folder(saved: Path, name: str) -> None:
    (saved / "state.json").write_text(json.dumps({"_data_files": [{"filename": name}]}))
    with pytest.raises(DataError, match="points outside its folder"):
        saved_files(saved)


@pytest.mark.parametrize("name", ["..", "a/b"])
def test_a_split_never_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "dataset_dict.json").write_text(json.dumps({"splits": [name]}))
    with pytest.raises(DataError, match="points outside its folder"):
        saved_files(tmp_path)


@pytest.mark.parametrize("state", ["", "[]", "{}", '{"_data_files": 3}', "[" * 5000])
def test_a_damaged_state_is_refused(saved: Path, state: str) -> None:
    (saved / "state.json").write_text(state)
    with pytest.raises(DataError, match="is damaged"):
        saved_files(saved)


def test_a_missing_file_and_an_index_are_refused(saved: Path) -> None:
    state = json.loads((saved / "state.json").read_text())
    (saved / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(UserError, match=r"names data-00001-of-00003\.arrow"):
        saved_files(saved)
    state["_indices_data_files"] = [{"filename": "indices.arrow"}]
    (saved / "state.json").write_text(json.dumps(state))
    with pytest.raises(UserError, match="flatten_indices"):
        saved_files(saved)


@pytest.mark.parametrize(
    ("empty", "what"),
    [
        (lambda: datasets.DatasetDict(), "has no splits"),
        (lambda: datasets.Dataset.from_dict({"text": []}), "is empty"),
    ],
)
def test_a_saved_data_set_without_splits_or_rows_is_refused(
    empty: Callable[[], Any], what: str, tmp_path: Path
) -> None:
    empty().save_to_disk(tmp_path / "none")
    with pytest.raises(UserError, match=what):
        saved_files(tmp_path / "none")


@pytest.mark.parametrize("name", ["*", "state.json", "dataset_info.json"])
def test_what_describes_a_saved_data_set_holds_no_records(saved: Path, name: str) -> None:
    with pytest.raises(UserError, match="describes a saved dataset") as raised:
        find_sources([str(saved / name)])
    assert raised.value.hint == f"name the folder: {saved}"


@pytest.mark.parametrize("write", [pa.ipc.new_stream, pa.ipc.new_file])
def test_an_estimate_counts_the_text_of_arrow_files(
    tmp_path: Path, tokenizer_path: Path, write: Callable[..., Any]
) -> None:
    table = pa.table({"text": TEXTS * 100, "junk": ["x" * 100] * 3000})
    with write(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    found = tokenmill.estimate([tmp_path / "a.arrow"], tokenizer_path)
    assert abs(found.documents / 3000 - 1) < 0.05

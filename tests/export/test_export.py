"""Exports: every format with its official reader, the order of rows, and what failures leave."""

from __future__ import annotations

import json
import resource
import shutil
from collections import namedtuple
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import in_small_shards, write_corpus

import tokenmill
from tokenmill.core.errors import (
    Interrupted,
    OutputConflictError,
    StorageError,
    UserError,
    VerificationError,
)
from tokenmill.load.export.rows import exporting as export_rows
from tokenmill.load.export.rows import writers
from tokenmill.load.export.rows.exporting import export
from tokenmill.load.rows.reader import RowReader, plan_row_lengths
from tokenmill.load.steps.order import banded, sequence_keys, shuffled
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import pack
from tokenmill.store.canonical import read_sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import file_digest
from tokenmill.store.exports import ExportManifest, ExportOptions
from tokenmill.store.plan import Plan
from tokenmill.store.row_format import Labels

LENGTH = 32
COLUMNS = ["input_ids", "labels", "position_ids"]
ALL_COLUMNS = [*COLUMNS, "attention_mask"]
WITHOUT_LABELS = ["input_ids", "position_ids"]
Columns = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    """Some hundred documents in several shards, with a number each."""
    folder = tmp_path_factory.mktemp("dataset")
    paths = write_corpus(folder / "data", num_files=2, per_file=100)
    for number, path in enumerate(paths):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [line | {"score": (37 * place + number) % 101} for place, line in enumerate(lines)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = in_small_shards(folder / "data", tokenizer_path, folder / "out", keep=["score"])
    assert len(made.shards) >= 3
    return made


@pytest.fixture(scope="module")
def plan(dataset: Dataset) -> Plan:
    """About a hundred rows of 32 tokens."""
    return pack(dataset, PackOptions(sequence_length=LENGTH)).plan


@pytest.fixture(params=["npy", "pt", "parquet", "datasets"])
def format_name(request: pytest.FixtureRequest) -> str:
    """Each format that can be written here."""
    if request.param == "pt":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    return request.param


def expected_columns(dataset: Dataset, plan: Plan, order: list[int], labels: Labels) -> Columns:
    """Rows of the plan in this order, as they are to be exported."""
    rows = RowReader(dataset, plan, labels).read(np.array(order), LENGTH)
    return columns_of(rows)


def columns_of(rows: Any) -> Columns:
    positions = []
    for row in rows.restarts.tolist():
        begin = 0
        for place, restarts in enumerate(row):
            begin = place if restarts else begin
            positions.append(place - begin)
    return {
        "input_ids": rows.ids.astype(np.int64),
        "labels": np.where(rows.has_label, rows.labels.astype(np.int64), -100),
        "position_ids": np.array(positions).reshape(rows.ids.shape),
        "attention_mask": rows.real.astype(np.int64),
    }


def assert_equal(found: Columns, expected: Columns) -> None:
    assert list(found) in (WITHOUT_LABELS, COLUMNS, ALL_COLUMNS)
    for name in found:
        assert found[name].tolist() == expected[name].tolist(), name


# Official readers: each gives the columns of all files, one after another.


def read_npy(folder: Path) -> list[Columns]:
    manifest = json.loads((folder / "export.json").read_text())
    files: dict[str, Columns] = {}
    for entry in manifest["files"]:
        stem, column, ending = entry["name"].rsplit(".", 2)
        assert ending == "npy"
        array = np.load(folder / entry["name"], mmap_mode="r")
        assert isinstance(array, np.memmap)
        files.setdefault(stem, {})[column] = array
    return list(files.values())


def read_pt(folder: Path) -> list[Columns]:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    manifest = json.loads((folder / "export.json").read_text())
    parts = [torch.load(folder / file["name"], weights_only=True) for file in manifest["files"]]
    assert all(tensor.is_contiguous() for part in parts for tensor in part.values())
    return [{name: tensor.numpy() for name, tensor in part.items()} for part in parts]


def as_arrays(table: pa.Table) -> Columns:
    """Of list columns of rows of one length."""
    return {
        name: np.stack(table.column(name).combine_chunks().to_numpy(zero_copy_only=False))
        for name in table.column_names
    }


def read_parquet(folder: Path) -> list[Columns]:
    manifest = json.loads((folder / "export.json").read_text())
    return [as_arrays(pq.read_table(folder / file["name"])) for file in manifest["files"]]


def read_datasets(folder: Path) -> list[Columns]:
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    loaded = datasets.load_from_disk(str(folder))
    assert loaded.column_names in (COLUMNS, ALL_COLUMNS)
    table = loaded.with_format("arrow")[:]
    return [as_arrays(table)]


READERS: dict[str, Callable[[Path], list[Columns]]] = {
    "npy": read_npy,
    "pt": read_pt,
    "parquet": read_parquet,
    "datasets": read_datasets,
}


def read(folder: Path, format_name: str) -> Columns:
    parts = READERS[format_name](folder)
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def file_lengths(folder: Path) -> list[int]:
    return [len(part["input_ids"]) for part in read_parquet(folder)]


@pytest.mark.parametrize("labels", ["aligned", "next"])
def test_the_official_reader_of_each_format_gives_the_rows_in_training_order(
    format_name: Any, labels: Labels, tmp_path: Path, dataset: Dataset, plan: Plan
) -> None:
    options = ExportOptions(format=format_name, labels=labels, sequences_per_file=40, seed=5)
    manifest = export(dataset, plan, tmp_path / "rows", options).manifest
    assert manifest.num_sequences == len(plan) > 80
    found = read(tmp_path / "rows", format_name)
    compact = format_name in ("pt", "parquet")
    expected = expected_columns(dataset, plan, shuffled(plan, 5).tolist(), labels)
    assert_equal(found, expected)
    assert {name: str(values.dtype) for name, values in found.items()} == manifest.dtypes
    expected_dtypes = {
        "input_ids": "uint16" if compact else "int32",
        "labels": "int64" if format_name == "pt" else "int32",
        "position_ids": "uint16" if format_name == "pt" else "int32",
    }
    if compact and labels == "aligned":
        del expected_dtypes["labels"]
        rule = "input_ids, but -100 where position_ids is 0 and in padding"
        assert manifest.left_out == {"labels": rule}
    assert manifest.dtypes == expected_dtypes


def test_an_attention_mask_is_exported_if_it_is_asked_for_with_a_warning(
    format_name: Any,
    tmp_path: Path,
    dataset: Dataset,
    plan: Plan,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = ExportOptions(format=format_name, columns=tuple(ALL_COLUMNS))
    manifest = export(dataset, plan, tmp_path / "rows", options).manifest
    (warning,) = caplog.messages
    assert "ignores position_ids, and documents attend to each other" in warning
    assert manifest.dtypes["attention_mask"] == "int8"
    found = read(tmp_path / "rows", format_name)
    assert list(found) == ALL_COLUMNS
    assert_equal(found, expected_columns(dataset, plan, shuffled(plan, 0).tolist(), "aligned"))


# What is written, and in how many files.


def test_the_manifest_seals_every_file(tmp_path: Path, dataset: Dataset, plan: Plan) -> None:
    out = tmp_path / "rows"
    options = ExportOptions(sequences_per_file=30, max_sequences=70, seed=2, labels="next")
    manifest = export(dataset, plan, out, options).manifest
    stored = read_sealed(out / "export.json", ExportManifest)
    assert stored.digest
    settled = {"format": "parquet", "columns": tuple(COLUMNS), "dtype": "uint16"}
    chosen = msgspec.structs.replace(options, **settled)
    assert (stored.dataset_id, stored.plan_id, stored.options, stored.files) == (
        dataset.manifest.dataset_id,
        plan.manifest.plan_id,
        chosen,
        manifest.files,
    )
    assert (stored.num_sequences, stored.pad_id) == (70, 0)
    assert [file.name for file in stored.files] == [
        "rows-32-00000.parquet",
        "rows-32-00001.parquet",
        "rows-32-00002.parquet",
    ]
    for file in stored.files:
        path = out / file.name
        assert (path.stat().st_size, file_digest(path)) == (file.bytes, file.xxh3_128)
    assert {path.name for path in out.iterdir()} == {
        "export.json",
        *(file.name for file in stored.files),
    }


@pytest.mark.parametrize(
    ("per_file", "rows", "lengths"),
    [
        (30, 70, [30, 30, 10]),
        (35, 70, [35, 35]),
        (69, 70, [69, 1]),
        (70, 70, [70]),
        (71, 70, [70]),
        (1, 3, [1, 1, 1]),
        (2**63, 5, [5]),
    ],
)
def test_files_hold_as_many_rows_as_asked_for_and_the_last_the_rest(
    per_file: int, rows: int, lengths: list[int], tmp_path: Path, dataset: Dataset, plan: Plan
) -> None:
    options = ExportOptions(sequences_per_file=per_file, max_sequences=rows)
    export(dataset, plan, tmp_path / "rows", options)
    assert file_lengths(tmp_path / "rows") == lengths
    order = shuffled(plan, 0).tolist()[:rows]
    found = read(tmp_path / "rows", "parquet")
    assert_equal(found, expected_columns(dataset, plan, order, "aligned"))


def test_a_file_takes_no_more_memory_than_it_may_unless_its_rows_are_asked_for(
    format_name: Any, tmp_path: Path, dataset: Dataset, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 5000
    monkeypatch.setattr(export_rows, "FILE_BYTES", limit)
    options = ExportOptions(format=format_name)
    export(dataset, plan, tmp_path / "rows", options)
    found = read(tmp_path / "rows", format_name)
    assert_equal(found, expected_columns(dataset, plan, shuffled(plan, 0).tolist(), "aligned"))
    row_bytes = {"pt": 4, "parquet": 6}.get(format_name, 12) * LENGTH
    per_file = limit // row_bytes
    number = len({path.name.split(".")[0] for path in (tmp_path / "rows").glob("rows-*")})
    assert number == -(-len(plan) // per_file) > 5
    asked_for = ExportOptions(format=format_name, sequences_per_file=len(plan) - 1)
    report = export(dataset, plan, tmp_path / "large", asked_for)
    assert report.rows_per_file == {LENGTH: len(plan) - 1}
    assert_equal(read(tmp_path / "large", format_name), found)


def test_length_buckets_make_files_of_each_row_length(tmp_path: Path, dataset: Dataset) -> None:
    made_of = {"packing": "length-buckets", "smallest_bucket": 8}
    options = PackOptions(sequence_length=64, **made_of)
    plan = pack(dataset, options, tmp_path / "plan").plan
    manifest = export(
        dataset, plan, tmp_path / "rows", ExportOptions(sequences_per_file=60)
    ).manifest
    lengths = plan_row_lengths(plan)
    order = shuffled(plan, 0)
    reader = RowReader(dataset, plan)
    expected_names = []
    for row_length in (8, 16, 32, 64):
        sequences = order[lengths[order] == row_length]
        expected = columns_of(reader.read(sequences, row_length))
        for number, first in enumerate(range(0, len(sequences), 60)):
            name = f"rows-{row_length}-{number:05d}.parquet"
            expected_names.append(name)
            part = {key: values[first : first + 60] for key, values in expected.items()}
            assert_equal(as_arrays(pq.read_table(tmp_path / "rows" / name)), part)
    assert [file.name for file in manifest.files] == expected_names
    assert manifest.num_sequences == len(plan)


# Order.


@pytest.mark.parametrize("key", ["length", "depth", "score"])
@pytest.mark.parametrize("bands", [1, 4, 1000])
def test_rows_are_ordered_by_a_key_in_bands(
    bands: int, key: str, tmp_path: Path, dataset: Dataset, plan: Plan
) -> None:
    options = ExportOptions(order_by=key, bands=bands, seed=3, max_sequences=60)
    export(dataset, plan, tmp_path / "rows", options)
    keys = sequence_keys(plan, key, dataset)
    order = banded(shuffled(plan, 3), keys, bands).tolist()[:60]
    found = read(tmp_path / "rows", "parquet")
    assert_equal(found, expected_columns(dataset, plan, order, "aligned"))
    if bands == 1000:
        assert sorted(keys[order]) == keys[order].tolist()


def first_segment(plan: Plan, sequence: int) -> tuple[int, int]:
    """The document of a row's first segment, and where that begins in it."""
    place = int(plan.offsets[sequence])
    return int(plan.documents[place]), int(plan.starts[place])


@pytest.mark.parametrize("order", ["plan", "corpus", "shuffled"])
@pytest.mark.parametrize("made_of", [{"packing": "balanced", "ranks": 4}, {}], ids=str)
def test_rows_have_the_order_that_is_asked_for(
    made_of: Any, order: Any, format_name: Any, tmp_path: Path, dataset: Dataset
) -> None:
    options = PackOptions(sequence_length=LENGTH, **made_of)
    plan = pack(dataset, options, tmp_path / "plan").plan
    orders = {
        "plan": list(range(len(plan))),
        "corpus": sorted(range(len(plan)), key=lambda sequence: first_segment(plan, sequence)),
        "shuffled": shuffled(plan, 3).tolist(),
    }
    assert (orders["corpus"] != orders["plan"]) == bool(made_of)
    wanted = ExportOptions(
        format=format_name, order=order, seed=3, sequences_per_file=40, max_sequences=70
    )
    export(dataset, plan, tmp_path / "rows", wanted)
    found = read(tmp_path / "rows", format_name)
    expected = expected_columns(dataset, plan, orders[order][:70], "aligned")
    assert_equal(found, expected)


def test_bands_keep_the_order_that_is_asked_for(
    tmp_path: Path, dataset: Dataset, plan: Plan
) -> None:
    options = ExportOptions(order="plan", order_by="length", bands=4)
    export(dataset, plan, tmp_path / "rows", options)
    order = banded(np.arange(len(plan)), sequence_keys(plan, "length"), 4).tolist()
    found = read(tmp_path / "rows", "parquet")
    assert_equal(found, expected_columns(dataset, plan, order, "aligned"))


def test_the_shuffled_order_is_the_default_and_another_order_is_another_export(
    tmp_path: Path, dataset: Dataset, plan: Plan
) -> None:
    export(dataset, plan, tmp_path / "rows", ExportOptions())
    assert export(dataset, plan, tmp_path / "rows", ExportOptions(order="shuffled")).already_there
    with pytest.raises(OutputConflictError) as caught:
        export(dataset, plan, tmp_path / "rows", ExportOptions(order="plan"))
    assert caught.value.why == "order: shuffled, not plan"


# Failures.


def assert_nothing_but(folder: Path, *names: str) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_what_stands_at_the_output_stays(
    kind: str, tmp_path: Path, dataset: Dataset, plan: Plan
) -> None:
    out = tmp_path / "rows"
    if kind == "folder":
        out.mkdir()
    elif kind == "file":
        out.write_text("mine")
    else:
        out.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputConflictError) as caught:
        export(dataset, plan, out)
    assert (caught.value.what, caught.value.where) == ("the output folder already exists", str(out))
    assert_nothing_but(tmp_path, "rows")
    assert kind != "file" or out.read_text() == "mine"


@pytest.mark.parametrize("write", [tokenmill.export, tokenmill.export_documents])
def test_a_path_that_no_json_can_hold_is_refused_before_anything_is_written(
    tmp_path: Path, dataset: Dataset, plan: Plan, write: Callable[..., object]
) -> None:
    chosen = {"plan": plan} if write is tokenmill.export else {}
    odd = tmp_path / "a\udcff"
    shutil.copytree(dataset.folder, odd)
    for folder, out, what in [
        (dataset.folder, odd / "rows", "the output folder"),
        (odd, tmp_path / "rows", "the dataset"),
    ]:
        with pytest.raises(UserError) as caught:
            write(folder, out, **chosen)
        assert caught.value.what == f"cannot use {what}"
        assert caught.value.why == "its path is not valid UTF-8"
        assert not out.exists()


def test_pt_files_are_refused_without_torch_before_anything_is_written(
    tmp_path: Path, dataset: Dataset, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="the format pt needs PyTorch") as caught:
        export(dataset, plan, tmp_path / "rows", ExportOptions(format="pt"))
    assert "[torch]" in caught.value.hint
    assert_nothing_but(tmp_path)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(28, "No space left on device"), StorageError),
        (Interrupted(2), Interrupted),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (VerificationError("damage"), VerificationError),
    ],
    ids=["disk full", "stopped", "keyboard", "damage"],
)
def test_an_export_that_fails_half_way_keeps_finished_files_for_the_same_command(
    format_name: Any,
    error: BaseException,
    expected: type[BaseException],
    tmp_path: Path,
    dataset: Dataset,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = iter(range(1000))
    columns_of_rows = export_rows.columns_of

    def fail_later(*arguments: Any) -> Any:
        if next(calls) == 5:  # of two files at once and two calls a file, one is complete
            raise error
        return columns_of_rows(*arguments)

    monkeypatch.setattr(export_rows, "columns_of", fail_later)
    monkeypatch.setattr(export_rows, "CHUNK_TOKENS", 20 * LENGTH)
    options = ExportOptions(format=format_name, sequences_per_file=40)
    with pytest.raises(expected) as caught:
        export(dataset, plan, tmp_path / "rows", options)
    left = tmp_path / ".rows.unfinished"
    assert sorted(path.name for path in left.iterdir()) == [
        "begun.json",
        "progress.json",
        "receipts",
        "rows",
    ]
    kept = len(list((left / "receipts").iterdir()))
    files = kept * (len(COLUMNS) if format_name == "npy" else 1)
    verb = "s are" if files > 1 else " is"
    note = f"{files} finished file{verb} kept"
    assert caught.value.__notes__[-1] == note
    monkeypatch.undo()
    assert export(dataset, plan, tmp_path / "rows", options).files_kept == files
    assert_nothing_but(tmp_path, "rows")
    expected_rows = expected_columns(dataset, plan, shuffled(plan, 0).tolist(), "aligned")
    assert_equal(read(tmp_path / "rows", format_name), expected_rows)


@pytest.mark.parametrize(("format_", "token_bytes"), [("npy", 12), ("parquet", 3)])
def test_rows_that_do_not_fit_on_the_disk_are_refused(
    format_: Any,
    token_bytes: int,
    tmp_path: Path,
    dataset: Dataset,
    plan: Plan,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Files of npy have 12 bytes a token, and what Parquet's are made of has 3."""
    needed, usage = len(plan) * LENGTH * token_bytes, namedtuple("usage", "total used free")
    options = ExportOptions(format=format_)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, needed - 1))
        with pytest.raises(StorageError, match="not enough disk space") as caught:
            export(dataset, plan, tmp_path / "rows", options)
        assert caught.value.why.startswith("the export needs ")
        assert_nothing_but(tmp_path)
        patch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, needed))
        export(dataset, plan, tmp_path / "rows", options)


@contextmanager
def files_limited_to(size: int) -> Iterator[None]:
    """Files end inside a write, as on a disk or with a quota that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [1000, 3000, 4000, 6000])
def test_a_file_that_is_cut_short_fails_the_export(
    size: int, format_name: Any, tmp_path: Path, dataset: Dataset, plan: Plan
) -> None:
    options = ExportOptions(format=format_name, max_sequences=50)  # columns of 6,400 bytes
    try:
        with files_limited_to(size):
            export(dataset, plan, tmp_path / "rows", options)
    except StorageError:
        assert_nothing_but(tmp_path)
    else:
        order = shuffled(plan, 0).tolist()[:50]
        found = read(tmp_path / "rows", format_name)
        assert_equal(found, expected_columns(dataset, plan, order, "aligned"))

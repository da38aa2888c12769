"""`verify` of exports: each format is read back, and whatever differs from the dataset is found."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import in_small_shards, write_corpus

import tokenmill
from conftest import Printed
from tokenmill.cli import main
from tokenmill.core.errors import (
    OutputConflictError,
    TokenmillError,
    UserError,
    VerificationError,
)
from tokenmill.load.export.rows import mds
from tokenmill.load.export.verifying import readers
from tokenmill.load.rows import token_source
from tokenmill.store.canonical import write_sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import file_digest
from tokenmill.store.exports import AnyManifest, read_export
from tokenmill.store.layout import HEADER
from tokenmill.store.manifest import FileEntry
from view_kit import view_of

LENGTH = 32
SMALL = {"sequences_per_file": 20, "max_sequences": 50}
ROWS: dict[str, dict[str, Any]] = {
    "npy": {"format": "npy", **SMALL},
    "pt": {"format": "pt", **SMALL},
    "parquet": {"format": "parquet", **SMALL},
    "datasets": {"format": "datasets", **SMALL},
    "mds": {"format": "mds", "columns": ("input_ids", "position_ids", "labels"), **SMALL},
    "next": {"labels": "next", "columns": ("input_ids", "labels", "attention_mask"), **SMALL},
    "bands": {"order_by": "length", "bands": 5, "seed": 3, "dtype": "int32", **SMALL},
    "documents": {"layout": "documents", **SMALL},
    "trl": {"layout": "trl", **SMALL},
    "llama-factory": {"layout": "llama-factory", **SMALL},
    "bridge": {"layout": "bridge", **SMALL},
    "in-order": {"order": "corpus", "with_labels": True},
}
DOCUMENTS: dict[str, dict[str, Any]] = {
    "megatron": {"file_size": 3000},
    "shuffled": {"order": "shuffled", "seed": 2, "file_size": 3000},
    "index-only": {"index_only": True, "order": "shuffled"},
    "nanogpt": {"format": "nanogpt"},
}
KINDS = [*ROWS, "buckets", *DOCUMENTS]


class Exports:
    """A dataset in a folder, with exports beside it, which are copied before they are changed."""

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self.folder, self.dataset, self._numbers = folder, dataset, count()
        self.plan = tokenmill.pack(dataset, sequence_length=LENGTH, subset=None).plan
        options = {"packing": "length-buckets", "smallest_bucket": 8, "sequence_length": 64}
        self._buckets = tokenmill.pack(dataset, folder=folder / "elsewhere" / "p", **options).plan

    def fresh(self, kind: str) -> Path:
        """A copy of an export, in the same place relative to its dataset."""
        made = self.folder / kind
        if kind == "buckets" and not made.exists():
            tokenmill.export(self.dataset, made, plan=self._buckets)
        elif kind in ROWS and not made.exists():
            tokenmill.export(self.dataset, made, plan=self.plan, **ROWS[kind])
        elif not made.exists():
            tokenmill.export_documents(self.dataset, made, **DOCUMENTS[kind])
        copy = self.folder / f"{kind}-{next(self._numbers)}"
        shutil.copytree(made, copy, symlinks=True)
        return copy


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Exports:
    """Some hundred documents in several shards, a fifth of them held out."""
    folder = tmp_path_factory.mktemp("exports")
    write_corpus(folder / "data", num_files=2, per_file=60)
    made = in_small_shards(folder / "data", tokenizer_path, folder / "corpus", validation=0.2)
    assert len(made.shards) >= 3
    return Exports(folder, made)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and documents come in many small pieces."""
    monkeypatch.setattr(readers, "TOKENS_AT_ONCE", 7 * LENGTH)
    monkeypatch.setattr(token_source, "TOKENS_AT_ONCE", 200)


@pytest.fixture(autouse=True)
def without_waiting(without_waiting_for_disks: None) -> None:
    """Nothing is flushed."""


def sealed_anew(folder: Path, **changes: Any) -> None:
    """Make the manifest of an export one of its files as they are now, with other fields."""
    manifest = read_export(folder)
    files = [
        FileEntry(name=file.name, bytes=path.stat().st_size, xxh3_128=file_digest(path))
        for file in manifest.files
        if (path := folder / file.name).is_file()
    ]
    changed: AnyManifest = msgspec.structs.replace(manifest, **{"files": files, **changes})
    write_sealed(folder / "export.json", changed)


def problem(folder: Path) -> tuple[str, str, str]:
    """What `verify` finds: what, the name of the file, and why."""
    with pytest.raises(VerificationError) as caught:
        tokenmill.verify(folder)
    return caught.value.what, Path(caught.value.where).name, caught.value.why


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_equals_its_dataset(kind: str, exports: Exports) -> None:
    folder = exports.fresh(kind)
    result = tokenmill.verify(folder)
    manifest = read_export(folder)
    assert result.is_export
    assert result.dataset.folder == exports.folder / "corpus"
    assert result.files == len(manifest.files)
    found = (result.rows, result.documents, result.tokens)
    if kind in DOCUMENTS:
        assert found == (0, exports.dataset.num_documents, exports.dataset.num_tokens)
    elif kind == "buckets":
        assert found[:2] == (manifest.num_sequences, 0)
    else:
        num_rows = 50 if "max_sequences" in ROWS[kind] else len(exports.plan)
        assert found[:2] == (manifest.num_rows if kind == "documents" else num_rows, 0)
        is_cut = kind in ("documents", "trl", "bridge")
        assert found[2] <= num_rows * LENGTH if is_cut else found[2] == num_rows * LENGTH


@pytest.mark.parametrize(
    ("documents", "options"),
    [(True, {"file_size": 2000}), (True, {"index_only": True}), (False, {})],
)
def test_an_export_of_a_view_equals_the_view(
    documents: bool, options: Any, exports: Exports, tmp_path: Path
) -> None:
    numbers = [n for n in range(exports.dataset.num_documents) if n % 7 > 2]
    view = view_of(tmp_path / "view", [exports.dataset], numbers)
    if documents:
        tokenmill.export_documents(view, tmp_path / "out", **options)
        assert tokenmill.verify(tmp_path / "out").documents == len(numbers)
    else:
        plan = tokenmill.pack(view, sequence_length=LENGTH).plan
        tokenmill.export(view, tmp_path / "out")
        result = tokenmill.verify(tmp_path / "out")
        assert result.rows == len(plan)


# Damage.


@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_byte_is_found(kind: str, exports: Exports) -> None:
    folder = exports.fresh(kind)
    files = [path for path in sorted(folder.iterdir()) if not path.is_symlink()]
    missed, tried, least = [], 0, 0
    for path in files:
        content = path.read_bytes()
        least += min(len(content), 12)
        for place in range(tried % 7, len(content), max(len(content) // 12, 1)):
            data = bytearray(content)
            data[place] ^= 1 << place % 8
            path.write_bytes(data)
            tried += 1
            try:
                tokenmill.verify(folder)
            except VerificationError:
                continue
            missed.append((path.name, place))
        path.write_bytes(content)
    assert missed == []
    assert tried >= least - 12
    tokenmill.verify(folder)


def changed_npy(folder: Path, name: str, change: Callable[[Any], None]) -> str:
    array = np.load(folder / f"{name}.input_ids.npy", mmap_mode="r+")
    change(array)
    array.flush()
    return f"{name}.input_ids.npy"


def changed_pt(folder: Path, name: str, change: Callable[[Any], None]) -> str:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    tensors = torch.load(folder / f"{name}.pt", weights_only=True)
    change(tensors["input_ids"].numpy())
    torch.save(tensors, folder / f"{name}.pt")
    return f"{name}.pt"


def changed_table(table: pa.Table, change: Callable[[Any], None]) -> pa.Table:
    ids = np.stack(table["input_ids"].combine_chunks().to_numpy(zero_copy_only=False))
    change(ids)
    lists = pa.array(list(ids), table.schema.field("input_ids").type)
    return table.set_column(0, table.schema.field("input_ids"), lists)


def changed_parquet(folder: Path, name: str, change: Callable[[Any], None]) -> str:
    path = folder / f"{name}.parquet"
    pq.write_table(changed_table(pq.read_table(path), change), path)
    return path.name


def changed_datasets(folder: Path, name: str, change: Callable[[Any], None]) -> str:
    path = folder / f"{name}.arrow"
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        table = changed_table(stream.read_all(), change)
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    return path.name


def changed_mds(folder: Path, name: str, change: Callable[[Any], None]) -> str:
    path = folder / f"{name}.mds"
    rows = mds.open_shard(path, mds.row_dtype(read_export(folder).dtypes, LENGTH))
    changed = np.memmap(path, rows.dtype, "r+", rows.offset, rows.shape)
    change(changed["tokens"])
    changed.flush()
    return path.name


CHANGED = {
    "mds": changed_mds,
    "npy": changed_npy,
    "pt": changed_pt,
    "parquet": changed_parquet,
    "datasets": changed_datasets,
}


@pytest.mark.parametrize("format_", CHANGED)
def test_a_changed_token_is_found_although_the_digests_were_made_anew(
    format_: str, exports: Exports
) -> None:
    folder, seen = exports.fresh(format_), []

    def change(ids: Any) -> None:
        seen.append(int(ids[13, 5]))
        ids[13, 5] = 77

    name = CHANGED[format_](folder, f"rows-{LENGTH}-00001", change)
    sealed_anew(folder)
    sequence = tokenmill.Permutation(len(exports.plan), 0)([33])[0]
    assert problem(folder) == (
        "the export differs from its dataset",
        name,
        f"row 13 (sequence {sequence} of the plan), input_ids, token 5: 77 in the file, "
        f"{seen[0]} in the dataset",
    )


@pytest.mark.parametrize("format_", CHANGED)
def test_swapped_files_are_found(format_: str, exports: Exports) -> None:
    for resealed in (False, True):
        folder = exports.fresh(format_)
        first, second = (
            sorted(folder.glob(f"rows-{LENGTH}-0000{number}*"), key=lambda path: path.name)
            for number in (0, 1)
        )
        for one, other in zip(first, second, strict=True):
            one.rename(folder / "between")
            other.rename(one)
            (folder / "between").rename(other)
        if resealed:
            sealed_anew(folder)
        what, name, why = problem(folder)
        if resealed:
            assert (what, name) == ("the export differs from its dataset", first[0].name)
            assert why.startswith("row 0 (sequence ")
        else:
            assert what == f"the export has {len(first) * 2} damaged files"
            assert "its digest differs" in why or "bytes, not" in why


def test_rows_that_are_far_too_long_are_not_read(exports: Exports) -> None:
    folder = exports.fresh("parquet")
    path = folder / f"rows-{LENGTH}-00000.parquet"
    table = pq.read_table(path)
    long = pa.array([[0] * 5000] * len(table), table.schema.field(0).type)
    pq.write_table(table.set_column(0, table.column_names[0], long), path)
    sealed_anew(folder)
    what = "a file of the export cannot be read"
    assert problem(folder) == (
        what,
        path.name,
        f"ValueError: its rows have more than {LENGTH} tokens",
    )


def test_a_column_of_another_type_or_shape_is_found(exports: Exports) -> None:
    folder = exports.fresh("npy")
    path = folder / f"rows-{LENGTH}-00000.position_ids.npy"
    np.save(path, np.load(path).astype(np.int64))
    sealed_anew(folder)
    why = "position_ids is int64, not int32"
    assert problem(folder) == ("a column has another type", path.name, why)
    folder = exports.fresh("npy")
    path = folder / f"rows-{LENGTH}-00000.position_ids.npy"
    np.save(path, np.load(path)[:-1])
    sealed_anew(folder)
    what, _, why = problem(folder)
    assert what == "a file of the export cannot be read"
    assert why == "ValueError: its columns are not arrays of rows of one length"
    for column in ("input_ids", "labels", "position_ids"):
        path = folder / f"rows-{LENGTH}-00000.{column}.npy"
        np.save(path, np.load(path)[:19, :-1])
    sealed_anew(folder)
    what, _, why = problem(folder)
    assert what == "the export differs from its dataset"
    assert why.endswith("input_ids, number of tokens: 31 in the file, 32 in the dataset")


@pytest.mark.parametrize("format_", CHANGED)
def test_rows_that_are_missing_or_too_many_are_found(format_: str, exports: Exports) -> None:
    """The last file becomes a copy of one with more rows, or goes."""
    folder = exports.fresh(format_)
    for path in folder.glob(f"rows-{LENGTH}-00002*"):
        shutil.copy(folder / path.name.replace("00002", "00000"), path)
    sealed_anew(folder)
    in_pieces = format_ in ("npy", "pt", "mds")
    more = "the export differs from its dataset" if in_pieces else "a file has too many rows"
    assert problem(folder)[0] == more
    folder = exports.fresh(format_)
    for path in folder.glob(f"rows-{LENGTH}-00002*"):
        path.unlink()
    sealed_anew(folder)
    what, name, why = problem(folder)
    assert what == "a file of the export cannot be read"
    assert name.startswith(f"rows-{LENGTH}-00002.")
    assert why.startswith("FileNotFoundError: ")


def test_all_damaged_files_are_listed(exports: Exports) -> None:
    folder = exports.fresh("parquet")
    first, second, third = sorted(folder.glob("*.parquet"))
    first.unlink()
    size = second.stat().st_size
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(bytes(third.stat().st_size))
    (folder / f"rows-{LENGTH}-00009.parquet").write_bytes(b"")
    (folder / ".hidden").write_bytes(b"")
    assert problem(folder) == (
        "the export has 4 damaged files",
        folder.name,
        f"{first.name}: it is missing\n"
        f"       {second.name}: it has {size - 1} bytes, not {size}\n"
        f"       {third.name}: its digest differs\n"
        f"       rows-{LENGTH}-00009.parquet: it is not part of the export",
    )


def test_a_cache_beside_whole_rows_is_to_be_moved_out(exports: Exports) -> None:
    folder = exports.fresh("documents")
    (folder / "cache-0123.arrow").write_bytes(b"")
    with pytest.raises(VerificationError) as caught:
        tokenmill.verify(folder)
    error = caught.value
    assert (error.what, error.why, error.hint) == (
        "the export has 1 file too many",
        "cache-0123.arrow: it is not part of the export",
        "move out what another tool wrote, such as caches, and verify again",
    )


def test_a_document_of_a_layout_that_differs_is_found(exports: Exports) -> None:
    folder = exports.fresh("documents")
    path = folder / f"rows-{LENGTH}-00001.arrow"
    with pa.ipc.open_stream(path.read_bytes()) as stream:
        table = stream.read_all()
    rows = table["labels"].to_pylist()
    before, rows[4][1] = rows[4][1], 77
    table = table.set_column(2, "labels", pa.array(rows, pa.list_(pa.int32())))
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
    sealed_anew(folder)
    what, name, why = problem(folder)
    assert (what, name) == ("the export differs from its dataset", path.name)
    assert why.startswith("row 4 (sequence ")
    assert why.endswith(f"), labels, token 1: 77 in the file, {before} in the dataset")


def test_documents_that_differ_are_found(exports: Exports) -> None:
    folder = exports.fresh("shuffled")
    path = folder / "train-00001.bin"
    ids = np.memmap(path, np.uint16, "r+")
    index = (folder / "train-00001.idx").read_bytes()
    lengths = np.frombuffer(index, "<i4", int.from_bytes(index[18:26], "little"), 34)
    place = int(lengths[:3].sum()) + 2
    before, ids[place] = int(ids[place]), 77
    ids.flush()
    sealed_anew(folder)
    what, name, why = problem(folder)
    assert (what, name) == ("the export differs from its dataset", path.name)
    assert why.startswith("document 3 (")
    assert why.endswith(f" of the dataset), token 2: 77 in the file, {before} in the dataset")


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["index-only", "megatron"])
def test_an_index_that_differs_is_found(kind: str, every: int, exports: Exports) -> None:
    folder = exports.fresh(kind)
    path = folder / "validation-00000.idx"
    content = path.read_bytes()
    for place in [*range(HEADER.size), *range(HEADER.size, len(content), every)]:
        data = bytearray(content)
        data[place] ^= 1
        path.write_bytes(data)
        sealed_anew(folder)
        why = f"byte {place:,}: {data[place]} in the file, {content[place]} as expected"
        assert problem(folder) == ("an index differs from its dataset", path.name, why)
    path.write_bytes(content + b"\0")
    sealed_anew(folder)
    assert problem(folder)[:2] == ("a file of the export has another size", path.name)


def test_a_link_to_another_shard_is_found(exports: Exports) -> None:
    folder = exports.fresh("index-only")
    first, second = ((folder / f"train-0000{number}.bin").readlink() for number in (0, 1))
    (folder / "train-00000.bin").unlink()
    (folder / "train-00000.bin").symlink_to(second)
    wrong = ("a link of the export is wrong", "train-00000.bin", "it leads elsewhere")
    assert problem(folder) == wrong
    (folder / "train-00000.bin").unlink()
    assert problem(folder) == wrong
    (folder / "train-00000.bin").symlink_to(first)
    assert tokenmill.verify(folder).tokens == exports.dataset.num_tokens


@pytest.mark.parametrize("kind", ["megatron", "index-only"])
@pytest.mark.parametrize("place", ["/elsewhere/", ""], ids=["prefix", "weight"])
def test_a_blend_of_other_files_or_weights_is_found(
    kind: str, place: str, exports: Exports
) -> None:
    folder = exports.fresh(kind)
    path = folder / "blend.json"
    blend = json.loads(path.read_text())
    blend["train"][1 if place else 0] = f"{place}1"
    path.write_text(json.dumps(blend, indent=2) + "\n")
    sealed_anew(folder)
    why = "it does not list the files with their tokens"
    assert problem(folder) == ("the blend of the export is wrong", path.name, why)


def test_a_damaged_dataset_is_found(exports: Exports, tmp_path: Path) -> None:
    shutil.copytree(exports.folder / "corpus", tmp_path / "corpus")
    path = next((tmp_path / "corpus" / "tokens").glob("*.bin"))
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)
    for kind in ("parquet", "megatron"):
        with pytest.raises(VerificationError) as caught:
            tokenmill.verify(exports.fresh(kind), dataset=tmp_path / "corpus")
        assert caught.value.where == str(path)


# Manifests that nobody wrote.


@pytest.mark.parametrize("name", ["../corpus/manifest.json", "/etc/hostname", "a/b", "", ".", "\0"])
def test_a_manifest_names_no_file_outside_its_folder(
    name: str, exports: Exports, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = exports.fresh("parquet")
    first, *rest = read_export(folder).files
    sealed_anew(folder, files=[msgspec.structs.replace(first, name=name), *rest])
    opened = []
    monkeypatch.setattr(
        "tokenmill.load.export.verifying.checking.file_digest", lambda path, _: opened.append(path)
    )
    problem(folder)
    assert {path.parent for path in opened} <= {folder}
    assert name not in [path.name for path in opened]


def test_a_pipe_in_place_of_the_manifest_is_not_waited_for(exports: Exports) -> None:
    folder = exports.fresh("parquet")
    (folder / "export.json").unlink()
    os.mkfifo(folder / "export.json")
    with pytest.raises(UserError, match="cannot find a dataset"):
        tokenmill.verify(folder)
    with pytest.raises(OutputConflictError):
        tokenmill.export(exports.dataset, folder, plan=exports.plan)


def test_a_link_to_a_file_outside_is_not_read(exports: Exports, tmp_path: Path) -> None:
    folder = exports.fresh("parquet")
    path = next(folder.glob("*.parquet"))
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert problem(folder)[0] == f"the file name {path.name!r} points outside the dataset"


HUGE = 2**62


@pytest.mark.parametrize(
    ("kind", "changes", "options"),
    [
        ("parquet", {"num_sequences": HUGE}, {}),
        ("parquet", {"pad_id": -1}, {}),
        ("parquet", {"dtypes": {"input_ids": "O"}}, {}),
        ("parquet", {"dtypes": {"../x": "int32"}}, {}),
        ("parquet", {"left_out": {"labels": "ask me"}}, {}),
        ("parquet", {"plan_id": "0"}, {}),
        ("parquet", {"plan_place": "/dev", "dataset_place": "\0"}, {}),
        ("parquet", {"files": []}, {}),
        ("parquet", {}, {"max_sequences": HUGE}),
        ("parquet", {}, {"seed": 2**64 - 1}),
        ("bands", {}, {"bands": 2**64}),
        ("parquet", {}, {"order_by": "../score"}),
        ("parquet", {}, {"format": "npy"}),
        ("parquet", {}, {"labels": "next"}),
        ("parquet", {}, {"dtype": "int32"}),
        ("npy", {}, {"columns": ("input_ids", "input_ids")}),
        ("megatron", {"parts": []}, {}),
        ("megatron", {"eos_id": 5}, {}),
        ("megatron", {"dtype": "float64"}, {}),
        ("megatron", {"links": {"../x": "y"}}, {"index_only": True}),
        ("megatron", {}, {"file_size": 2**63}),
        ("megatron", {}, {"order": "shuffled", "seed": 2**64 - 1}),
        ("megatron", {}, {"format": "nanogpt"}),
    ],
    ids=str,
)
def test_a_manifest_that_says_something_else_is_refused(
    kind: str, changes: Any, options: Any, exports: Exports
) -> None:
    folder = exports.fresh(kind)
    replaced = msgspec.structs.replace(read_export(folder).options, **options)
    sealed_anew(folder, **{"options": replaced, **changes})
    with pytest.raises(TokenmillError) as caught:
        tokenmill.verify(folder)
    assert isinstance(caught.value, VerificationError | UserError)


# Where the dataset is.


def test_export_and_dataset_may_move_together(exports: Exports, tmp_path: Path) -> None:
    for name in ("corpus", "elsewhere", "buckets", "index-only"):
        exports.fresh(name) if name in KINDS else None
        shutil.copytree(exports.folder / name, tmp_path / "moved" / name, symlinks=True)
    (tmp_path / "link").symlink_to(tmp_path / "moved" / "buckets")
    for folder in ("moved/buckets", "moved/index-only", "link"):
        result = tokenmill.verify(tmp_path / folder)
        assert result.dataset.folder == tmp_path / "moved" / "corpus"


def test_the_dataset_of_an_export_that_moved_is_named(exports: Exports, tmp_path: Path) -> None:
    made = exports.fresh("npy")
    moved = tmp_path / "deep" / "npy"
    shutil.move(made, moved)
    with pytest.raises(UserError) as caught:
        tokenmill.verify(moved)
    assert (caught.value.what, caught.value.where, caught.value.why, caught.value.hint) == (
        "cannot find the dataset of the export",
        str(moved),
        f"export.json says ../corpus, and no dataset is at {tmp_path / 'deep' / 'corpus'}",
        "name it with --dataset (dataset= in Python)",
    )
    result = tokenmill.verify(moved, dataset=exports.dataset.folder)
    assert result.rows == 50


def test_another_dataset_is_refused(exports: Exports, tmp_path: Path, tokenizer_path: Path) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=5)
    other = tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "other", workers=1)
    with pytest.raises(UserError, match="the export was made of another dataset"):
        tokenmill.verify(exports.fresh("npy"), dataset=other.out)


def test_a_plan_is_found_in_the_dataset_or_missed(exports: Exports, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(exports.folder / "corpus", corpus)
    rows = exports.fresh("buckets")
    shutil.move(rows, tmp_path / "rows")
    with pytest.raises(UserError) as caught:
        tokenmill.verify(tmp_path / "rows")
    assert caught.value.what == "cannot find the plan of the export"
    assert caught.value.hint == f"put the plan back, into {corpus / 'plans'}"
    shutil.copytree(exports.folder / "elsewhere" / "p", corpus / "plans" / "buckets")
    assert tokenmill.verify(tmp_path / "rows").tokens > 0


@pytest.mark.parametrize("kind", ["parquet", "megatron"])
def test_an_export_of_an_earlier_version_needs_its_dataset_named(
    kind: str, exports: Exports
) -> None:
    folder = exports.fresh(kind)
    unset = {"dataset_place": msgspec.UNSET}
    sealed_anew(folder, **unset, **({"plan_place": msgspec.UNSET} if kind == "parquet" else {}))
    assert "_place" not in (folder / "export.json").read_text()
    with pytest.raises(UserError, match="it does not say where dataset"):
        tokenmill.verify(folder)
    assert tokenmill.verify(folder, dataset=exports.dataset.folder).tokens > 0


# A share, and progress.


@pytest.mark.parametrize("kind", ["npy", "parquet", "megatron"])
def test_a_sample_compares_a_share_of_each_file_and_no_digests(kind: str, exports: Exports) -> None:
    folder = exports.fresh(kind)
    manifest = read_export(folder)
    wrong = [msgspec.structs.replace(file, xxh3_128="0" * 32) for file in manifest.files]
    sealed_anew(folder, files=wrong)
    result = tokenmill.verify(folder, sample=1e-9)
    first_pieces = {"npy": 7 * 3, "parquet": 50}
    if kind == "megatron":
        assert 0 < result.documents < exports.dataset.num_documents
    else:
        assert result.rows == first_pieces[kind]
    with pytest.raises(VerificationError):
        tokenmill.verify(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_progress_is_told_in_bytes(kind: str, exports: Exports) -> None:
    folder = exports.fresh(kind)
    told: dict[str, list[tuple[int, int]]] = {}
    result = tokenmill.verify(
        folder, advance=lambda stage, done, total: told.setdefault(stage, []).append((done, total))
    )
    assert told["files"][-1] == (result.bytes, result.bytes)
    done, total = told["comparing"][-1]
    assert done == total > 0
    assert [pair[0] for pair in told["comparing"]] == sorted(pair[0] for pair in told["comparing"])


# The command.


def test_the_command_says_what_was_compared(exports: Exports, capsys: Printed) -> None:
    folder, corpus = exports.fresh("parquet"), exports.folder / "corpus"
    assert main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "verified: 3 files, 50 rows, 1,600 tokens",
        f"equal to {corpus}"[:79],
    ]
    assert main(["verify", str(exports.fresh("nanogpt")), "--json"]) == 0
    printed = capsys.readouterr()
    dataset = exports.dataset
    assert json.loads(printed.out) == {
        "verified": True,
        "sample": 1.0,
        "files": 2,
        "bytes": 2 * dataset.num_tokens,
        "rows": 0,
        "documents": dataset.num_documents,
        "tokens": dataset.num_tokens,
        "plans": 0,
        "compared_documents": 0,
        "decoded_documents": 0,
        "dataset": str(corpus),
    }
    assert printed.err == ""
    shutil.rmtree(folder)


def refused(command: str, capsys: Printed) -> Iterator[str]:
    assert main(["verify", *command.split()]) == 2
    yield from capsys.readouterr().err.splitlines()


def test_options_that_do_not_fit_are_refused(exports: Exports, capsys: Printed) -> None:
    folder = exports.fresh("parquet")
    given = "--against-sources --plan p --shard 0/2 --tokenizer python:m:t --transform python:m:t"
    assert list(refused(f"{folder} {given}", capsys))[:6] == [
        "tokenmill: verifying the export has 5 problems",
        "  why: --against-sources: cannot be used: an export is compared with its dataset; give it "
        "when you verify that",
        "       --plan: cannot be used: an export names its plan",
        "       --tokenizer: cannot be used: ids are compared, not decoded",
        "       --transform: cannot be used: only a dataset is compared with its sources",
        "       --shard: cannot be used: an export is verified as a whole; --sample checks a share "
        "of it",
    ]
    assert next(refused(f"{exports.folder / 'corpus'} --dataset x", capsys)) == (
        "tokenmill: --dataset: cannot be used: this is no export, which has a dataset"
    )

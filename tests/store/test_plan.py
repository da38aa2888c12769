"""A plan on disk: plain arrays, sealed by what stands beside them, and whole or not there."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from packing_kit import reseal_plan
from tokenmill.core.errors import OutputConflictError, StorageError, UserError, VerificationError
from tokenmill.core.records import Segments, Sequences
from tokenmill.store import arrays
from tokenmill.store.canonical import canonical_json, read_sealed, sealed, write_sealed
from tokenmill.store.files import exchange
from tokenmill.store.manifest import FileEntry
from tokenmill.store.plan import (
    ARRAYS,
    PLAN_NAME,
    Plan,
    PlanManifest,
    PlanWriter,
    WindowEntry,
    plan_name_problem,
)
from tokenmill.store.row_format import RowFormat

DATASET = "d" * 32
OPTIONS = {"sequence_length": 4}
FIGURES = {"sequences": 3}
ROWS = RowFormat(
    sequence_lengths=[4],
    row_multiple=1,
    group_size=1,
    most_segments=2,
    segment_multiple=1,
    bos_at_cuts=False,
    eos_at_cuts=False,
    bos_predicts=False,
    joins_ends=False,
    overlap=0,
    overlap_in_loss=False,
)

FIRST_WINDOW = [[(0, 0, 4)], [(1, 0, 3), (2, 0, 1)]]
SECOND_WINDOW = [[(0, 2, 4)]]
SEQUENCES = [[(0, 0, 4)], [(1, 0, 3), (2, 0, 1)], [(3, 2, 4)]]


def sequences(rows: list[list[tuple[int, int, int]]]) -> Sequences:
    """Rows of (document, start, length)."""
    columns = np.array([segment for row in rows for segment in row], np.int32).reshape(-1, 3)
    offsets = np.cumsum([0, *map(len, rows)], dtype=np.int64)
    return Sequences(Segments(*np.ascontiguousarray(columns.T)), offsets)


def write_plan(
    folder: Path,
    *,
    dataset_id: str = DATASET,
    options: dict[str, Any] = OPTIONS,
    overwrite: bool = False,
) -> Plan:
    """A plan of two windows: documents 0 to 2 in two shards, and document 3 in another."""
    with PlanWriter(folder, num_documents=4) as writer:
        writer.append(sequences(FIRST_WINDOW), first_document=0, num_shards=2)
        writer.append(sequences(SECOND_WINDOW), first_document=3, num_shards=1)
        writer.finish(dataset_id, options, FIGURES, ROWS, overwrite=overwrite)
    return Plan(folder)


def rows(plan: Plan) -> list[list[tuple[int, int, int]]]:
    return [plan.segments(sequence) for sequence in range(len(plan))]


def test_an_opened_plan_gives_the_segments_of_each_sequence(tmp_path: Path) -> None:
    plan = write_plan(tmp_path / "plan")
    assert len(plan) == 3
    assert rows(plan) == SEQUENCES
    assert plan.window_starts.tolist() == [0, 2, 3]


def test_documents_beyond_32_bits_are_written_in_64(tmp_path: Path) -> None:
    with PlanWriter(tmp_path / "plan", num_documents=2**32) as writer:
        writer.append(sequences(SECOND_WINDOW), first_document=2**32 + 5, num_shards=1)
        writer.finish(DATASET, OPTIONS, FIGURES, ROWS, overwrite=False)
    plan = Plan(tmp_path / "plan")
    assert plan.documents.dtype == np.uint64
    assert rows(plan) == [[(2**32 + 5, 2, 4)]]


def test_a_plan_may_have_no_sequences(tmp_path: Path) -> None:
    with PlanWriter(tmp_path / "plan", num_documents=1) as writer:
        writer.append(sequences([]), first_document=0, num_shards=1)
        writer.finish(DATASET, OPTIONS, FIGURES, ROWS, overwrite=False)
    plan = Plan(tmp_path / "plan")
    assert (len(plan), plan.offsets.tolist(), plan.lengths.tolist()) == (0, [0], [])


def test_the_id_is_of_dataset_options_and_arrays(tmp_path: Path) -> None:
    same = [write_plan(tmp_path / name) for name in ("a", "b")]
    other_dataset = write_plan(tmp_path / "c", dataset_id="e" * 32)
    other_options = write_plan(tmp_path / "d", options={"sequence_length": 5})
    with PlanWriter(tmp_path / "e", num_documents=4) as writer:
        writer.append(sequences(SEQUENCES[:2]), first_document=0, num_shards=3)
        writer.finish(DATASET, OPTIONS, FIGURES, ROWS, overwrite=False)
    other_arrays = Plan(tmp_path / "e")
    assert same[0].manifest.plan_id == same[1].manifest.plan_id
    others = [other_dataset, other_options, other_arrays]
    assert len({plan.manifest.plan_id for plan in [same[0], *others]}) == 4


# What is damaged.


def test_a_folder_without_plan_json_is_no_plan(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UserError, match="cannot find a plan") as caught:
            Plan(folder)
        assert caught.value.where == str(folder)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    ],
    ids=["missing", "empty", "a byte less", "a byte more"],
)
def test_an_array_of_another_size_is_refused(
    name: str, damage: Callable[[Path], object], tmp_path: Path
) -> None:
    write_plan(tmp_path / "plan")
    path = tmp_path / "plan" / f"{name}.npy"
    damage(path)
    with pytest.raises(VerificationError, match="a plan is damaged") as caught:
        Plan(tmp_path / "plan")
    assert caught.value.where == str(path)
    assert caught.value.why == "it is missing, or has another size"


@pytest.mark.parametrize("name", ["documents", "starts", "lengths"])
@pytest.mark.parametrize(
    "other",
    [
        np.zeros(4, "<i4"),
        np.zeros(4, "<f4"),
        np.zeros(4, ">u4"),
        np.zeros((2, 2), "<u4"),
        np.zeros(3, "<u4"),
        np.zeros((), "<u4"),
    ],
    ids=["signed", "float", "big-endian", "table", "shorter", "scalar"],
)
def test_an_array_of_another_dtype_or_shape_is_refused(
    name: str, other: np.ndarray, tmp_path: Path
) -> None:
    write_plan(tmp_path / "plan")
    path = tmp_path / "plan" / f"{name}.npy"
    np.save(path, other)
    reseal_plan(tmp_path / "plan")
    with pytest.raises(VerificationError, match="a plan is damaged") as caught:
        Plan(tmp_path / "plan")
    assert caught.value.where == str(path)
    assert caught.value.why == "it is not an array of 4 numbers of type <u4"


class Trap:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize("name", ARRAYS)
def test_nothing_is_ever_unpickled(name: str, tmp_path: Path) -> None:
    write_plan(tmp_path / "plan")
    sprung = tmp_path / "sprung"
    path = tmp_path / "plan" / f"{name}.npy"
    objects = np.array([Trap(sprung)] * 4, object)
    for data in (_saved(objects), pickle.dumps(objects)):
        path.write_bytes(data)
        reseal_plan(tmp_path / "plan")
        with pytest.raises(VerificationError, match="a plan is damaged"):
            Plan(tmp_path / "plan")
    assert not sprung.exists()


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_that_is_a_link_to_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    write_plan(tmp_path / "plan")
    path = tmp_path / "plan" / f"{name}.npy"
    path.rename(tmp_path / f"{name}.npy")
    path.symlink_to(tmp_path / f"{name}.npy")
    with pytest.raises(VerificationError, match="points outside"):
        Plan(tmp_path / "plan")


@pytest.mark.parametrize("files", [[], [FileEntry(name="../a", bytes=1, xxh3_128="0" * 32)]])
def test_a_plan_that_names_other_files_is_refused(files: list[FileEntry], tmp_path: Path) -> None:
    write_plan(tmp_path / "plan")
    manifest = read_sealed(tmp_path / "plan" / PLAN_NAME, PlanManifest)
    write_sealed(
        tmp_path / "plan" / PLAN_NAME, sealed(msgspec.structs.replace(manifest, files=files))
    )
    with pytest.raises(VerificationError, match="a plan is damaged"):
        Plan(tmp_path / "plan")


def test_rows_that_do_not_ascend_are_damage(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan")
    path = tmp_path / "plan" / PLAN_NAME
    data = msgspec.json.decode(path.read_bytes())
    data["rows"]["sequence_lengths"] = [4, 4]
    path.write_bytes(canonical_json(data))
    with pytest.raises(VerificationError, match="sequence_lengths must ascend"):
        Plan(tmp_path / "plan")


# What stands in the way, and what is left behind.


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_plan_is_not_written_over_another(tmp_path: Path) -> None:
    before = write_plan(tmp_path / "plan").manifest
    with pytest.raises(
        OutputConflictError, match="the folder of the plan already exists"
    ) as caught:
        write_plan(tmp_path / "plan", dataset_id="e" * 32)
    assert caught.value.why == "it contains a plan"
    assert Plan(tmp_path / "plan").manifest == before
    assert names(tmp_path) == ["plan"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("best-fit-4096", ""),
        ("données.v2", ""),
        ("", "is empty, or contains"),
        ("a/b", "contains a slash"),
        ("a\x07b", "contains a slash, a control character"),
        ("a:b", "one of <>:"),
        (".a", "begins with a dot"),
        ("a.", "ends with a dot or a space"),
        ("a ", "ends with a dot or a space"),
        ("CON", "is the name of a device on Windows"),
        ("lpt1.npy", "is the name of a device on Windows"),
        ("é" * 100, ""),
        ("é" * 101, "has more than 200 bytes"),
    ],
)
def test_a_plan_has_a_name_that_all_file_systems_hold(name: str, problem: str) -> None:
    found = plan_name_problem(name)
    assert problem in found
    assert bool(problem) == bool(found)


def make_notes(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("mine")


@pytest.mark.parametrize(
    "make",
    [
        make_notes,
        lambda path: path.mkdir(),
        lambda path: path.write_text("mine"),
        lambda path: path.symlink_to(path.parent / "nothing"),
    ],
    ids=["folder with a file", "empty folder", "file", "broken link"],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_plan_is_never_touched(
    make: Callable[[Path], object], overwrite: bool, tmp_path: Path
) -> None:
    make(tmp_path / "plan")
    with pytest.raises(
        OutputConflictError, match="the folder of the plan already exists"
    ) as caught:
        write_plan(tmp_path / "plan", overwrite=overwrite)
    assert caught.value.why == "it contains files that are not part of a plan"
    assert names(tmp_path) == ["plan"]
    if (tmp_path / "plan").is_dir():
        assert names(tmp_path / "plan") in ([], ["notes.txt"])


def test_a_plan_beside_which_something_else_lies_is_kept_whole(tmp_path: Path) -> None:
    """It is replaced with all its files, or it stays: never half of it."""
    write_plan(tmp_path / "plan")
    (tmp_path / "plan" / "notes.txt").write_text("mine")
    try:
        write_plan(tmp_path / "plan", dataset_id="e" * 32, overwrite=True)
    except (OutputConflictError, StorageError):
        assert rows(Plan(tmp_path / "plan")) == SEQUENCES
    assert (tmp_path / "plan" / "notes.txt").read_text() == "mine"


class Crash(BaseException):
    """A kill, which nothing catches."""


@pytest.mark.parametrize("call", range(8))
def test_an_overwrite_that_was_interrupted_shows_the_old_plan_or_the_new_one(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = DATASET, "e" * 32
    write_plan(tmp_path / "plan")
    if not exchange(*(make_folder(tmp_path / name) for name in "ab")):
        pytest.skip("this system cannot swap two names in one step")
    changes = iter(range(1000))
    shown = []

    def watched(change: Callable[..., Any]) -> Callable[..., Any]:
        def changed(*arguments: Any, **options: Any) -> Any:
            result = change(*arguments, **options)
            shown.append(Plan(tmp_path / "plan").manifest.dataset_id)
            if next(changes) == call:
                raise Crash
            return result

        return changed

    for place, name in ((os, "replace"), (os, "rename"), (os, "unlink"), (os, "rmdir")):
        monkeypatch.setattr(place, name, watched(getattr(place, name)))
    with contextlib.suppress(Crash):
        write_plan(tmp_path / "plan", dataset_id=new, overwrite=True)
    assert set(shown) <= {old, new}
    assert Plan(tmp_path / "plan").manifest.dataset_id in (old, new)


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_an_exception_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(AttributeError),
        PlanWriter(tmp_path / "plans" / "plan", num_documents=4) as writer,
    ):
        writer.append(None, first_document=0, num_shards=2)  # type: ignore[arg-type]
    assert names(tmp_path / "plans") == []


def test_what_a_killed_run_has_left_disturbs_nobody(tmp_path: Path) -> None:
    stale = tmp_path / ".plan.unfinished" / "new"
    stale.mkdir(parents=True)
    (stale / "documents.npy").write_bytes(b"half of it")
    (stale / "lengths.npy").write_bytes(b"half of it")
    assert rows(write_plan(tmp_path / "plan")) == SEQUENCES


class FullDisk(io.FileIO):
    """Takes a kilobyte."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 1000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data) or 0


@pytest.mark.parametrize("buffer_bytes", [64, 1 << 20])
def test_a_full_disk_is_a_storage_error_and_leaves_nothing(
    buffer_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_small(path: Path, mode: str, buffering: int) -> io.BufferedWriter:
        return io.BufferedWriter(FullDisk(path, "w"), buffer_bytes)

    monkeypatch.setattr(arrays, "open", open_small, raising=False)

    def write_many() -> None:
        with PlanWriter(tmp_path / "plan", num_documents=1) as writer:
            writer.append(sequences([[(0, 0, 1)]] * 1000), first_document=0, num_shards=1)
            writer.finish(DATASET, OPTIONS, FIGURES, ROWS, overwrite=False)

    with pytest.raises(StorageError, match="cannot write the plan") as caught:
        write_many()
    assert "No space left" in caught.value.why
    assert names(tmp_path) == []


def test_a_plan_whose_replacement_fails_stands_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plan(tmp_path / "plan")
    replace = os.replace

    def failing(source: Path, target: Path) -> None:
        if Path(source).name == "new":
            raise OSError(errno.EIO, "no")
        replace(source, target)

    monkeypatch.setattr("tokenmill.store.files.exchange", lambda *_: False)
    monkeypatch.setattr("tokenmill.store.files.os.replace", failing)
    with pytest.raises(StorageError):
        write_plan(tmp_path / "plan", dataset_id="e" * 32, overwrite=True)
    assert names(tmp_path) == ["plan"]
    assert rows(Plan(tmp_path / "plan")) == SEQUENCES


def test_a_plan_that_a_killed_replacement_set_aside_comes_back(tmp_path: Path) -> None:
    write_plan(tmp_path / "plan")
    (tmp_path / ".plan.unfinished").mkdir()
    (tmp_path / "plan").rename(tmp_path / ".plan.unfinished" / "replaced")
    with pytest.raises(OutputConflictError, match="already exists"):
        write_plan(tmp_path / "plan")
    assert rows(Plan(tmp_path / "plan")) == SEQUENCES


@pytest.mark.parametrize(
    "windows", [[], [{"shards": 0, "sequences": 2}], [{"shards": 1, "sequences": 9}]]
)
def test_windows_that_do_not_cover_the_sequences_are_refused(
    windows: list[dict[str, int]], tmp_path: Path
) -> None:
    write_plan(tmp_path / "plan")
    reseal_plan(tmp_path / "plan", windows=msgspec.convert(windows, list[WindowEntry]))
    with pytest.raises(VerificationError, match="a plan is damaged"):
        Plan(tmp_path / "plan")

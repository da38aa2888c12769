"""Exports that were killed, and folders that hold an export already."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from corpora import write_corpus
from msgspec import UNSET

import tokenmill
from conftest import write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import Interrupted, OutputConflictError, UserError
from tokenmill.load.export.rows import exporting as export_rows
from tokenmill.load.export.rows.exporting import export
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import pack
from tokenmill.store import files
from tokenmill.store.canonical import sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.exports import ExportOptions
from tokenmill.store.plan import Plan, open_plan

GOLDEN = Path(__file__).parents[1] / "golden" / "plans" / "dataset"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    """A hundred documents, and plans of 32 and 16 tokens."""
    folder = tmp_path_factory.mktemp("dataset")
    write_corpus(folder / "data", num_files=1, per_file=100)
    report = tokenmill.build(folder / "data", tokenizer_path, folder / "out", workers=1)
    for length in (32, 16):
        pack(report.dataset, PackOptions(sequence_length=length))
    return report.dataset


@pytest.fixture
def plan(dataset: Dataset) -> Plan:
    return open_plan(dataset, "best-fit-32")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def stop_before_the_end(
    dataset: Dataset, plan: Plan, out: Path, options: ExportOptions, patch: pytest.MonkeyPatch
) -> None:
    """Every file is complete, and the export is not."""

    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    with patch.context() as context:
        context.setattr(export_rows, "_finish", fail)
        with pytest.raises(KeyboardInterrupt):
            export(dataset, plan, out, options)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


BALANCED = {"packing": "balanced", "ranks": 4, "window_sequences": 8, "subset": "train"}
BUCKETS = {"packing": "length-buckets", "smallest_bucket": 16, "subset": "train"}


@pytest.mark.parametrize(
    ("planned", "labels", "digest"),
    [
        (BALANCED, "aligned", "f99f292fb204c505b81cbc3fd906bcc3"),
        (BALANCED, "next", "e60edb59f97e5959bea7c4284e39b992"),
        (BUCKETS, "aligned", "07daff9478ba02f9109255679bce6a58"),
        (BUCKETS, "next", "8280f8617f48fae9de024501f5ce95b6"),
    ],
)
def test_an_export_has_the_bytes_that_it_always_had(
    planned: dict[str, Any], labels: Any, digest: str, tmp_path: Path
) -> None:
    """The digest of `export.json` covers those of all files; places are those of this test."""
    dataset = Dataset(GOLDEN)
    plan = pack(dataset, PackOptions(sequence_length=64, **planned), tmp_path / "plan").plan
    options = ExportOptions(format="npy", labels=labels, sequences_per_file=3, seed=4)
    report = export(dataset, plan, tmp_path / "rows", options)
    places = {"dataset_place": UNSET, "plan_place": UNSET}
    assert sealed(msgspec.structs.replace(report.manifest, **places)).digest == digest
    place = os.path.relpath(GOLDEN, tmp_path / "rows")
    assert (report.manifest.dataset_place, report.manifest.plan_place) == (place, "../plan")


KILLED = """
import os, signal, sys
from pathlib import Path
from tokenmill.cli import main
from tokenmill.load.export import folder
from tokenmill.load.export.rows import exporting as rows

point, count = sys.argv[1], int(sys.argv[2])
places = {
    "assembling": (rows.RowPartitions, "append"),
    "writing": (rows, "columns_of"),
    "removing": (folder.shutil, "rmtree"),
}
owner, name = places[point]
really, calls = getattr(owner, name), iter(range(1000))

def killed(*arguments, **options):
    if next(calls) == count:
        os.kill(os.getpid(), signal.SIGKILL)
    return really(*arguments, **options)

setattr(owner, name, killed)
rows.CHUNK_TOKENS = 20 * 32
rows.FILES_AT_ONCE = 1
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize(
    ("point", "count", "kept"),
    [
        ("assembling", 1, 0),
        ("writing", 3, 1),
        ("removing", 1, "all"),
    ],
)
def test_a_killed_export_continues_and_equals_one_that_was_not(
    point: str, count: int, kept: Any, dataset: Dataset, plan: Plan, tmp_path: Path
) -> None:
    given = "--format npy --columns input_ids --sequences-per-file 40 --dtype uint16"
    rows = tmp_path / "rows"
    command = ["export", str(dataset.folder), "--plan", plan.folder.name, "--out", str(rows)]
    killing = [sys.executable, "-c", KILLED, point, str(count), *command, *given.split()]
    killed = subprocess.run(killing, capture_output=True, timeout=100)
    assert killed.returncode == -9, killed.stderr
    assert rows.exists() == (kept == "all")
    options = ExportOptions(
        format="npy", columns=("input_ids",), sequences_per_file=40, dtype="uint16"
    )
    report = export(dataset, plan, rows, options)
    undisturbed = export(dataset, plan, tmp_path / "undisturbed", options)
    num_files = len(undisturbed.manifest.files)
    assert num_files > 3
    assert report.already_there == (kept == "all")
    assert report.files_kept == (0 if kept == "all" else kept)
    assert contents(rows) == contents(tmp_path / "undisturbed")
    assert names(tmp_path) == ["rows", "undisturbed"]


def test_an_export_that_was_stopped_before_it_took_its_name_takes_it(
    dataset: Dataset, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(export_rows, "take_name", stop)
        with pytest.raises(KeyboardInterrupt):
            export(dataset, plan, tmp_path / "rows")
    left = tmp_path / ".rows.unfinished" / "rows"
    files = {path.name: path.stat().st_ino for path in left.iterdir()}
    assert export(dataset, plan, tmp_path / "rows").files_kept == 1
    name = "rows-32-00000.parquet"
    assert (tmp_path / "rows" / name).stat().st_ino == files[name]


@pytest.mark.parametrize("damage", ["file", "receipt"])
def test_a_finished_file_of_the_right_size_that_was_damaged_is_written_again(
    damage: str,
    dataset: Dataset,
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = ExportOptions(format="npy", columns=("input_ids",), sequences_per_file=40)
    stop_before_the_end(dataset, plan, tmp_path / "rows", options, monkeypatch)
    work = tmp_path / ".rows.unfinished"
    if damage == "file":
        file = work / "rows" / "rows-32-00001.input_ids.npy"
        file.write_bytes(file.read_bytes()[:-4] + b"\1\0\0\0")
    else:
        (work / "receipts" / "rows-32-00001.json").write_text("[]")
    report = export(dataset, plan, tmp_path / "rows", options)
    assert report.files_kept == len(report.manifest.files) - 1
    assert caplog.messages == ["rows-32-00001 was changed; writing it again"]
    export(dataset, plan, tmp_path / "undisturbed", options)
    assert contents(tmp_path / "rows") == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("can_exchange", [True, False])
def test_an_export_that_was_replaced_never_comes_back(
    can_exchange: bool,
    dataset: Dataset,
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kill comes after the new export has its name, and before the old one is removed."""
    if not can_exchange:
        monkeypatch.setattr(files, "exchange", lambda *_: False)
    out, wanted = tmp_path / "rows", ExportOptions(format="npy", seed=4)
    export(dataset, open_plan(dataset, "best-fit-16"), out, ExportOptions(format="npy"))
    export(dataset, plan, out, ExportOptions(format="npy", seed=3), overwrite=True)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        export(dataset, plan, out, wanted, overwrite=True)
    assert names(tmp_path) == [".rows.unfinished", "rows"]
    again = export(dataset, plan, out, wanted, overwrite=True)
    assert again.manifest.options.seed == 4
    export(dataset, plan, tmp_path / "undisturbed", wanted)
    assert contents(out) == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("name", ["mine/x", "rows/x", "replaced/x", "receipts/x"])
def test_files_of_someone_else_beside_an_export_are_kept(
    name: str, dataset: Dataset, plan: Plan, tmp_path: Path
) -> None:
    export(dataset, plan, tmp_path / "rows")
    mine = tmp_path / ".rows.unfinished" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert export(dataset, plan, tmp_path / "rows").already_there
    with pytest.raises(OutputConflictError, match="files that tokenmill has not written") as caught:
        export(dataset, plan, tmp_path / "rows", overwrite=True)
    assert caught.value.why == f"it holds {name!r}"
    assert mine.read_text() == "mine"


def test_a_complete_export_is_found_and_left_as_it_is(
    dataset: Dataset, plan: Plan, tmp_path: Path
) -> None:
    made = export(dataset, plan, tmp_path / "rows")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "rows").iterdir()}
    named = ExportOptions(dtype="uint16", columns=("input_ids", "position_ids"))
    again = export(dataset, plan, tmp_path / "rows", named)
    assert (made.already_there, again.already_there) == (False, True)
    assert again.manifest == made.manifest
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_another_export_at_the_output_is_a_conflict_that_names_the_difference(
    dataset: Dataset, plan: Plan, tmp_path: Path
) -> None:
    out = tmp_path / "rows"
    first = export(dataset, plan, out, ExportOptions(columns=("input_ids",), seed=3))
    before = contents(out)
    with pytest.raises(OutputConflictError) as caught:
        export(dataset, plan, out, ExportOptions(dtype="int32", seed=4, with_labels=True))
    assert str(caught.value) == (
        "the output folder holds another export\n"
        f"  where: {out}\n"
        "  why: columns: input_ids, not input_ids,labels,position_ids; seed: 3, not 4; "
        "dtype: uint16, not int32\n"
        "  next: choose another folder, or replace the export with --overwrite"
    )
    other = open_plan(dataset, "best-fit-16")
    with pytest.raises(OutputConflictError) as caught:
        export(dataset, other, out, ExportOptions(columns=("input_ids",), seed=3))
    found, wanted = first.manifest.plan_id, other.manifest.plan_id
    assert caught.value.why == f"plan_id: {found}, not {wanted}"
    assert contents(out) == before


def test_a_damaged_export_is_not_taken_for_a_complete_one(
    dataset: Dataset, plan: Plan, tmp_path: Path
) -> None:
    export(dataset, plan, tmp_path / "rows")
    (tmp_path / "rows" / "rows-32-00000.parquet").unlink()
    with pytest.raises(OutputConflictError) as caught:
        export(dataset, plan, tmp_path / "rows")
    assert caught.value.why == "its file 'rows-32-00000.parquet' is missing or has another size"
    assert not export(dataset, plan, tmp_path / "rows", overwrite=True).already_there


def test_overwrite_replaces_an_export_and_nothing_else(
    dataset: Dataset, plan: Plan, tmp_path: Path
) -> None:
    out = tmp_path / "rows"
    export(dataset, plan, out)
    options = ExportOptions(format="npy", columns=("input_ids",))
    export(dataset, plan, out, options, overwrite=True)
    assert names(out) == ["export.json", "rows-32-00000.input_ids.npy"]
    assert names(tmp_path) == ["rows"]
    (out / "notes.txt").write_text("mine")
    with pytest.raises(OutputConflictError) as caught:
        export(dataset, plan, out, overwrite=True)
    assert caught.value.why == "it holds 'notes.txt'"
    assert (out / "notes.txt").read_text() == "mine"


def test_an_export_that_is_stopped_says_what_is_kept_and_how_to_resume(
    dataset: Dataset,
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: Any) -> Any:
        raise Interrupted(2)

    monkeypatch.setattr(export_rows, "take_name", stop)
    chosen = ["--plan", plan.folder.name, "--out", str(tmp_path / "rows")]
    assert main(["export", str(dataset.folder), *chosen]) == 130
    errors = capsys.readouterr().err.splitlines()
    assert "tokenmill: interrupted; 1 finished file is kept" in errors
    assert "resume with the same command:" in errors


def test_another_export_that_was_stopped_is_a_conflict_until_it_is_overwritten(
    dataset: Dataset, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop_before_the_end(dataset, plan, tmp_path / "rows", ExportOptions(seed=3), monkeypatch)
    with pytest.raises(OutputConflictError) as caught:
        export(dataset, plan, tmp_path / "rows")
    assert str(caught.value) == (
        "another export to the output folder was begun and stopped\n"
        f"  where: {tmp_path / '.rows.unfinished'}\n"
        "  why: seed: 3, not 0\n"
        "  next: finish it with its command, choose another folder, or add --overwrite"
    )
    assert not hasattr(caught.value, "__notes__")
    report = export(dataset, plan, tmp_path / "rows", overwrite=True)
    assert (report.files_kept, names(tmp_path)) == (0, ["rows"])


def test_two_processes_do_not_export_to_one_folder(
    dataset: Dataset, plan: Plan, tmp_path: Path
) -> None:
    from tokenmill.store.files import locked_folder

    work = tmp_path / ".rows.unfinished"
    work.mkdir()
    with locked_folder(work), pytest.raises(OutputConflictError) as caught:
        export(dataset, plan, tmp_path / "rows")
    assert caught.value.what == "another process is writing to the output folder"
    assert not export(dataset, plan, tmp_path / "rows").already_there


@pytest.mark.parametrize("file_format", ["npy", "parquet", "datasets"])
def test_uint16_ids_are_read_by_the_official_readers(
    file_format: Any, dataset: Dataset, plan: Plan, tmp_path: Path
) -> None:
    options = ExportOptions(format=file_format, columns=("input_ids",), dtype="uint16")
    report = export(dataset, plan, tmp_path / "rows", options)
    assert report.manifest.dtypes == {"input_ids": "uint16"}
    path = tmp_path / "rows" / report.manifest.files[0].name
    if file_format == "npy":
        found = np.load(path)
        assert found.dtype == np.uint16
        first = found[0].tolist()
    elif file_format == "parquet":
        import pyarrow.parquet as pq

        first = pq.read_table(path).column("input_ids")[0].as_py()
    else:
        datasets = pytest.importorskip("datasets", reason="datasets is not installed")
        first = datasets.load_from_disk(str(tmp_path / "rows"))[0]["input_ids"]
    export(dataset, plan, tmp_path / "int32", ExportOptions(format="npy"))
    assert first == np.load(tmp_path / "int32" / "rows-32-00000.input_ids.npy")[0].tolist()


def test_ids_that_do_not_fit_are_refused_before_the_start(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    large = json.loads(tokenizer_path.read_text())
    large["model"]["vocab"] |= {f"unused{i}": 400 + i for i in range(66_000)}
    (tmp_path / "tokenizer.json").write_text(json.dumps(large))
    data = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    built = tokenmill.build(data, tmp_path / "tokenizer.json", tmp_path / "out", workers=1).dataset
    plan = pack(built, PackOptions(sequence_length=8)).plan
    with pytest.raises(UserError) as caught:
        export(built, plan, tmp_path / "rows", ExportOptions(dtype="uint16"))
    largest = built.manifest.tokenizer.largest_id
    assert str(caught.value) == (
        "the ids do not fit uint16\n"
        f"  where: {tmp_path / 'out'}\n"
        f"  why: the largest id of its tokenizer is {largest:,}, and uint16 ends at 65,535\n"
        "  next: use --dtype int32, which takes four bytes per token"
    )
    assert not (tmp_path / "rows").exists()
    assert export(built, plan, tmp_path / "rows").manifest.dtypes["input_ids"] == "int32"

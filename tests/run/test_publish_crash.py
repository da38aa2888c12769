"""A crash between any two steps of publishing changes nothing in the end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import contents, write_corpus

import tokenmill
from tokenmill.core.errors import DataError, OutputConflictError, UserError
from tokenmill.core.options import Overwrite
from tokenmill.read import units
from tokenmill.run.journal.ledger import num_finished_units
from tokenmill.run.tasks import encode as build_module
from tokenmill.store.files import REPLACED, take_name
from tokenmill.store.objects.folder import FolderStore


class Crash(BaseException):
    """The process ends here."""


def crash_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which ends the process after so many calls."""
    count = 0

    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count > calls:
            raise Crash
        return function(*arguments, **options)

    return wrapped


@pytest.mark.parametrize(
    "name", [".manifest.json.0123456789abcdef.tmp", ".run.json.0123456789abcdef.tmp"]
)
def test_a_half_written_manifest_does_not_stop_the_resume(
    name: str, tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=30)
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "publish", crash_after(0, build_module.publish))
        with pytest.raises(Crash):
            tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    (tmp_path / "out" / name).write_bytes(b"{")
    (tmp_path / "out" / "tokenizer" / ".tokenizer.json.0123456789abcdef.tmp").write_bytes(b"{")
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    tokenmill.verify(tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.tmp"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A dataset of a corpus `other`, and another corpus, `data`."""
    folder = tmp_path_factory.mktemp("built")
    write_corpus(folder / "data", num_files=1, per_file=30)
    write_corpus(folder / "other", num_files=1, per_file=20)
    tokenmill.build(folder / "other", tokenizer_path, folder / "out", workers=1)
    return folder


@pytest.fixture
def other(built: Path, tmp_path: Path) -> dict[str, bytes]:
    """A dataset in `out`, which a build of `data` is to replace."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return files(tmp_path / "out")


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_overwrite_leaves_the_old_dataset_whole_and_can_be_resumed(
    other: dict[str, bytes], tmp_path: Path, tokenizer_path: Path
) -> None:
    bad = tmp_path / "data" / "bad.jsonl"
    bad.write_text("no JSON\n")
    arguments = (tmp_path / "data", tokenizer_path, tmp_path / "out")
    with pytest.raises(DataError, match="records are bad"):
        tokenmill.build(*arguments, workers=1, overwrite=True)
    assert files(tmp_path / "out") == other
    assert names(tmp_path) == [".out.unfinished", "data", "other", "out"]
    assert num_finished_units(tmp_path / "out") == 1
    report = tokenmill.build(*arguments, workers=1, overwrite=True, max_bad="50%")
    assert report.reused is not None
    assert report.dataset.num_documents == 30
    assert names(tmp_path) == ["data", "other", "out"]
    assert not (tmp_path / "out" / "work").exists()


def test_an_overwrite_that_was_begun_otherwise_is_begun_anew(
    other: dict[str, bytes], tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (tmp_path / "data", tokenizer_path, tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "publish", crash_after(0, build_module.publish))
        with pytest.raises(Crash):
            tokenmill.build(*arguments, workers=1, overwrite=True)
    assert files(tmp_path / "out") == other
    report = tokenmill.build(*arguments, workers=1, overwrite=True, max_documents=10)
    assert report.reused is None
    assert report.dataset.num_documents == 10
    assert names(tmp_path) == ["data", "other", "out"]


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_kill_at_the_exchange_leaves_the_old_dataset_or_the_new_one(
    moment: str,
    can_exchange: bool,
    other: dict[str, bytes],
    tmp_path: Path,
    tokenizer_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def crash(new: Path, out: Path) -> None:
        if moment == "after":
            take_name(new, out)
        elif not can_exchange:
            out.rename(new.parent / REPLACED)
        raise Crash

    arguments = (tmp_path / "data", tokenizer_path, tmp_path / "out")
    with monkeypatch.context() as patch:
        if not can_exchange:
            patch.setattr("tokenmill.store.files.exchange", lambda *_: False)
        patch.setattr("tokenmill.run.workspace.take_name", crash)
        with pytest.raises(Crash):
            tokenmill.build(*arguments, workers=1, overwrite=True)
    if moment == "before" and not can_exchange:
        with pytest.raises(UserError, match="cannot find a dataset") as caught:
            tokenmill.open(tmp_path / "out")
        assert caught.value.hint == "run the build again; it restores the old dataset"
        with pytest.raises(OutputConflictError, match="holds another dataset"):
            tokenmill.build(*arguments, workers=1)
    old = moment == "before"
    assert tokenmill.open(tmp_path / "out").num_documents == (20 if old else 30)
    report = tokenmill.build(*arguments, workers=1, overwrite=True)
    assert report.dataset.num_documents == 30
    assert names(tmp_path) == ["data", "other", "out"]


def test_the_old_dataset_is_removed_first_if_that_is_asked_for(
    other: dict[str, bytes], tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (tmp_path / "data", tokenizer_path, tmp_path / "out")
    (tmp_path / ".out.unfinished" / "new" / "work").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "publish", crash_after(0, build_module.publish))
        with pytest.raises(Crash):
            tokenmill.build(*arguments, workers=1, overwrite="first")
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert names(tmp_path) == ["data", "other", "out"]
    tokenmill.build(*arguments, workers=1)
    assert tokenmill.open(tmp_path / "out").num_documents == 30


def test_files_of_someone_else_stop_an_overwrite_before_it_begins(
    other: dict[str, bytes], tmp_path: Path, tokenizer_path: Path
) -> None:
    (tmp_path / "out" / "tokens" / "notes.txt").write_text("mine")
    with pytest.raises(OutputConflictError, match="files that tokenmill has not written") as caught:
        tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", overwrite=True)
    assert caught.value.why == "it holds 'tokens/notes.txt'"
    assert files(tmp_path / "out") == {**other, "tokens/notes.txt": b"mine"}
    assert names(tmp_path) == ["data", "other", "out"]


def test_an_old_dataset_that_a_kill_left_beside_the_new_one_is_removed_by_the_next_run(
    other: dict[str, bytes], tmp_path: Path, tokenizer_path: Path
) -> None:
    shutil.copytree(tmp_path / "out", tmp_path / ".out.unfinished" / "new")
    tokenmill.build(tmp_path / "other", tokenizer_path, tmp_path / "out", workers=1)
    assert files(tmp_path / "out") == other
    assert names(tmp_path) == ["data", "other", "out"]


@pytest.mark.parametrize(
    ("name", "overwrite"),
    [("mine/x", True), ("new/x", "first"), ("replaced/x", True), ("x", "first")],
)
def test_files_of_someone_else_beside_the_output_stop_an_overwrite_before_it_begins(
    name: str,
    overwrite: Overwrite,
    other: dict[str, bytes],
    tmp_path: Path,
    tokenizer_path: Path,
) -> None:
    mine = tmp_path / ".out.unfinished" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(OutputConflictError, match="files that tokenmill has not written") as caught:
        tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", overwrite=overwrite)
    assert caught.value.why == f"it holds {name!r}"
    assert files(tmp_path / "out") == other
    assert files(tmp_path / ".out.unfinished") == {name: b"mine"}


def test_files_put_beside_the_output_during_an_overwrite_are_kept(
    other: dict[str, bytes], tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(*arguments: Any) -> Any:
        (tmp_path / ".out.unfinished" / "mine").write_text("mine")
        return publish(*arguments)

    publish = build_module.publish
    arguments = (tmp_path / "data", tokenizer_path, tmp_path / "out")
    monkeypatch.setattr(build_module, "publish", put)
    with pytest.raises(OutputConflictError, match="files that tokenmill has not written"):
        tokenmill.build(*arguments, workers=1, overwrite=True)
    assert files(tmp_path / "out") == other
    (tmp_path / ".out.unfinished" / "mine").rename(tmp_path / "mine")
    report = tokenmill.build(*arguments, workers=1, overwrite=True)
    assert report.dataset.num_documents == 30
    assert names(tmp_path) == ["data", "mine", "other", "out"]


def test_a_folder_of_someone_else_does_not_become_the_output(
    other: dict[str, bytes], tmp_path: Path, tokenizer_path: Path
) -> None:
    mine = tmp_path / ".new.unfinished" / "replaced"
    mine.mkdir(parents=True)
    (mine / "manifest.json").write_text("mine")
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "new", workers=1)
    assert files(mine) == {"manifest.json": b"mine"}


def test_the_current_folder_is_not_renamed(
    other: dict[str, bytes], tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path / "out")
    with pytest.raises(OutputConflictError, match="the output folder cannot be renamed") as caught:
        tokenmill.build(tmp_path / "data", tokenizer_path, ".", overwrite=True)
    assert "--overwrite=first" in caught.value.hint
    assert files(tmp_path / "out") == other


def test_an_interrupted_overwrite_leaves_no_old_shard_behind(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
    write_corpus(tmp_path / "large", num_files=2, per_file=300)
    write_corpus(tmp_path / "little", num_files=1, per_file=30)
    tokenmill.build(tmp_path / "large", tokenizer_path, tmp_path / "out", workers=1)
    (tmp_path / "out" / "manifest.json").unlink()  # the first that --overwrite removes
    (tmp_path / "out" / "work").mkdir()
    (tmp_path / "out" / "work" / "lock").touch()
    tokenmill.build(tmp_path / "little", tokenizer_path, tmp_path / "out", workers=1)
    tokenmill.verify(tmp_path / "out", against_sources=True)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A corpus of several units, `data`, and its dataset, `clean`."""
    folder = tmp_path_factory.mktemp("clean")
    write_corpus(folder / "data", num_files=2, per_file=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
        tokenmill.build(folder / "data", tokenizer_path, folder / "clean", workers=1)
    return folder


@pytest.mark.parametrize(
    ("module", "name", "calls"),
    [
        *[(FolderStore, "create", calls) for calls in range(1, 18, 3)],
        *[(FolderStore, "add_files", calls) for calls in (0, 1)],
        (build_module, "publish", 0),
        (build_module, "sweep", 0),
        (build_module, "judge_rejected", 0),
    ],
)
def test_a_crash_at_any_step_of_the_commit_is_finished_by_the_next_build(
    module: Any,
    name: str,
    calls: int,
    clean: Path,
    tmp_path: Path,
    tokenizer_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, crash_after(calls, getattr(module, name)))
        with pytest.raises(Crash):
            tokenmill.build(clean / "data", tokenizer_path, tmp_path / "out", workers=1)
    tokenmill.build(clean / "data", tokenizer_path, tmp_path / "out", workers=1)
    assert contents(tmp_path / "out") == contents(clean / "clean")

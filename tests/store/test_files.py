"""Files appear whole or not at all, and names stay inside their folder."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from tokenmill.core.errors import OutputConflictError, StorageError, VerificationError
from tokenmill.store import files
from tokenmill.store.files import (
    exchange,
    held_beside,
    locked_folder,
    path_inside,
    storage_errors,
    temporary_folder,
    whole_file,
    write_atomically,
)


def test_names_below_a_folder_are_its_files(tmp_path: Path) -> None:
    assert path_inside(tmp_path, "tokens/00000.bin") == tmp_path.resolve() / "tokens/00000.bin"
    assert path_inside(tmp_path, "a/../b") == tmp_path.resolve() / "b"


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "..", "a\0b", "out/x", "out"])
def test_names_that_lead_out_of_a_folder_are_refused(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / "out").symlink_to(tmp_path)
    with pytest.raises(VerificationError, match="points outside the dataset"):
        path_inside(folder, name)


def test_links_that_lead_in_a_circle_are_refused_or_lead_to_no_file(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    try:
        path = path_inside(tmp_path, "loop")
    except VerificationError:
        return  # Python 3.11 and 3.12 refuse to follow them, later ones give the link itself
    assert not path.is_file()


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    for data in (b"old", b"new"):
        write_atomically(tmp_path / "file", data)
        assert (tmp_path / "file").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write_atomically(tmp_path / "file", b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="cannot write") as caught:
        write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert caught.value.hint == "free some space and run the same command again"


def test_storage_errors_name_the_file_once(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    with (
        pytest.raises(StorageError) as caught,
        storage_errors("do this", outer),
        storage_errors("do that", inner),
    ):
        raise OSError(errno.EACCES, "Permission denied")
    assert (caught.value.what, caught.value.where) == ("cannot do that", str(inner))
    assert caught.value.why == "Permission denied"


def test_a_temporary_folder_becomes_what_it_is_renamed_to(tmp_path: Path) -> None:
    with temporary_folder(tmp_path / "deep" / "plan") as folder:
        (folder / "a").write_text("a")
        folder.rename(tmp_path / "deep" / "plan")
    assert (tmp_path / "deep" / "plan" / "a").read_text() == "a"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["plan"]


def test_a_folder_that_another_process_took_for_a_left_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock."""
    answers = iter([False, True])
    monkeypatch.setattr(files, "lock_if_free", lambda descriptor: next(answers))
    with temporary_folder(tmp_path / "plan") as folder:
        assert folder.is_dir()
    assert next(answers, None) is None
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_a_folder_that_was_removed_meanwhile_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    lock = files.lock_if_free

    def made_again(descriptor: int) -> bool:
        folder.rmdir()
        folder.mkdir()
        return lock(descriptor)

    monkeypatch.setattr(files, "lock_if_free", made_again)
    with locked_folder(folder) as is_ours:
        assert not is_ours


def test_a_whole_file_is_flushed_before_it_takes_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    monkeypatch.setattr(files, "fsync_path", lambda path: done.append(f"flush {path.name}"))
    monkeypatch.setattr(os, "replace", lambda old, new: done.append(f"name {new.name}"))
    with whole_file(tmp_path / "rows") as unfinished:
        unfinished.write_bytes(b"rows")
    assert done == ["flush rows", "name rows", f"flush {tmp_path.name}"]


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("around the current folder", "it is a mount point, or contains the current folder"),
        ("a mount point", "it is a mount point, or contains the current folder"),
        ("in a closed folder", "the folder that it is in cannot be written to"),
    ],
)
def test_an_output_that_cannot_be_renamed_is_refused_before_the_work(
    place: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    (out / "below").mkdir(parents=True)
    if place == "around the current folder":
        monkeypatch.chdir(out / "below")
    elif place == "a mount point":
        monkeypatch.setattr(Path, "is_mount", lambda path: path == out)
    else:
        monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)
    with (
        pytest.raises(OutputConflictError, match="the output folder cannot be renamed") as caught,
        held_beside(out, "manifest", "new".__eq__),
    ):
        pytest.fail("it is held")
    assert list(tmp_path.iterdir()) == [out]
    assert caught.value.why == why


def test_two_folders_swap_their_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    swapped = exchange(tmp_path / "a", tmp_path / "b")
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("*/*")}
    assert found == ({"a/b", "b/a"} if swapped else {"a/a", "b/b"})
    assert swapped or sys.platform != "linux"


def test_folders_that_a_killed_process_left_are_removed_and_living_ones_stay(
    tmp_path: Path,
) -> None:
    (tmp_path / ".plan.0badcafe.tmp").mkdir()
    (tmp_path / ".plan2.0badcafe.tmp").mkdir()
    (tmp_path / ".plan.backup-of-my-thesis.tmp").mkdir()
    with (
        temporary_folder(tmp_path / "plan") as first,
        temporary_folder(tmp_path / "plan") as second,
    ):
        names = {path.name for path in tmp_path.iterdir()}
        assert names == {
            ".plan.backup-of-my-thesis.tmp",
            ".plan2.0badcafe.tmp",
            first.name,
            second.name,
        }

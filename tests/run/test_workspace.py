"""The folders of a build, and its lock."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokenmill.core.errors import OutputConflictError, StorageError
from tokenmill.run.publish import sweep
from tokenmill.run.workspace import (
    DATASET_OUTPUT,
    Workspace,
    check_output,
    locked,
)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "out")


def fill(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()}


def test_creating_a_workspace_again_clears_half_done_attempts_and_nothing_else(
    workspace: Workspace,
) -> None:
    workspace.create()
    kept = {"work/shards/0.bin", "work/receipts/0.json", "work/job.json", "tokens/0.bin"}
    fill(workspace.folder, *kept, "work/attempts/1.bin")
    workspace.create()
    assert tree(workspace.folder) == kept


def test_a_workspace_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    fill(tmp_path, "file")
    with pytest.raises(StorageError, match="cannot create the output folder"):
        Workspace(tmp_path / "file").create()


DATASET = {
    "manifest.json",
    "run.json",
    "tokens/00000.bin",
    "tokens/00000.idx",
    "documents/00000.parquet",
    "rejected/00000.jsonl",
    "tokenizer/tokenizer.json",
    "plans/packed/plan.json",
    "plans/.packed.unfinished/new/plan.json",
    "plans/.packed.unfinished/new/offsets.npy",
    "plans/.packed.unfinished/new/.plan.json.0123456789abcdef.tmp",
    "plans/.packed.unfinished/replaced/plan.json",
}
BUILD = {
    "work/job.json",
    "work/attempts/0.bin",
    "work/shards/0.bin",
    "work/receipts/0.json",
}
OTHERS = {"README.md", "tokens.txt", "mine/manifest.json", "work/lock", "work/notes.txt"}


def test_removing_a_dataset_removes_all_but_the_lock(workspace: Workspace) -> None:
    fill(workspace.folder, *DATASET, *BUILD, "work/lock")
    workspace.remove_output()
    assert tree(workspace.folder) == {"work/lock"}


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "tokens/notes.txt",
        "tokenizer/merges.txt",
        "plans/packed/mine.npy",
        "plans/.packed.unfinished/new/mine.npy",
        "plans/.packed.unfinished/plan.json.bak",
        "work/notes.txt",
        ".thesis.backup.tmp",
    ],
)
def test_a_dataset_with_a_file_of_someone_else_is_not_removed(
    name: str, workspace: Workspace
) -> None:
    fill(workspace.folder, *DATASET, name)
    with pytest.raises(OutputConflictError, match="files that tokenmill has not written") as caught:
        workspace.remove_output()
    assert caught.value.why == f"it holds {name!r}"
    assert tree(workspace.folder) == DATASET | {name}


def test_three_files_of_someone_else_are_named(workspace: Workspace) -> None:
    fill(workspace.folder, "a", "b/c", "d", "e", *(f"f{number}" for number in range(2000)))
    with pytest.raises(OutputConflictError) as caught:
        workspace.remove_output()
    assert caught.value.why == "it holds 'a', 'b/c', 'd' and 2,001 more"


def test_removing_a_dataset_never_follows_a_link_out_of_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    fill(tmp_path, "elsewhere/00000.bin")
    fill(workspace.folder, "manifest.json")
    (workspace.folder / "tokens").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputConflictError, match="files that tokenmill has not written"):
        workspace.remove_output()
    assert (tmp_path / "elsewhere" / "00000.bin").is_file()


@pytest.mark.parametrize(
    "names", [None, [], ["work/"], ["manifest.json"], ["work/lock"], [*DATASET, "notes.txt"]]
)
def test_an_output_may_be_absent_empty_a_dataset_or_a_build(
    tmp_path: Path, names: list[str] | None
) -> None:
    """A build that was killed before it made its lock leaves the empty folder `work`."""
    (tmp_path / "real").mkdir()
    if names is not None:
        (tmp_path / "out").symlink_to(tmp_path / "real")
    for name in names or ():
        if name.endswith("/"):
            (tmp_path / "out" / name).mkdir()
        else:
            fill(tmp_path / "out", name)
    if "manifest.json" in (names or ()):
        (tmp_path / "out" / "manifest.json").write_bytes(DATASET_OUTPUT.start)
    check_output(Workspace(tmp_path / "out"))


@pytest.mark.parametrize(
    ("kind", "message"), [("file", "the output is a file"), ("link", "the output is a broken link")]
)
def test_an_output_that_is_no_folder_is_refused(tmp_path: Path, kind: str, message: str) -> None:
    if kind == "file":
        fill(tmp_path, "out")
    else:
        (tmp_path / "out").symlink_to(tmp_path / "gone")
    with pytest.raises(OutputConflictError, match=message):
        check_output(Workspace(tmp_path / "out"))


@pytest.mark.parametrize(
    "names",
    [
        *(["thesis.tex"], ["manifest.json.bak"], ["work/notes.txt"], ["tokens/00000.bin"]),
        *(["manifest.json"], ["notes.txt", "work/lock"], ["work"]),
    ],
)
def test_an_output_that_holds_anything_else_is_refused(tmp_path: Path, names: list[str]) -> None:
    fill(tmp_path / "out", *names)
    with pytest.raises(OutputConflictError, match="is not empty and holds no dataset") as caught:
        check_output(Workspace(tmp_path / "out"))
    assert caught.value.why == f"it holds {names[0].split('/')[0]!r}"
    assert tree(tmp_path / "out") == set(names)


HOLD = """
import sys
from pathlib import Path
from tokenmill.run.workspace import locked
from tokenmill.run.publish import sweep
from tokenmill.run.workspace import Workspace
with locked(Workspace(Path(sys.argv[1]))):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_refused_while_another_process_holds_it_and_free_when_that_dies(
    workspace: Workspace,
) -> None:
    command = [sys.executable, "-c", HOLD, str(workspace.folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(OutputConflictError, match="another build is writing") as caught,
            locked(workspace),
        ):
            pytest.fail("two builds hold the lock")
        assert caught.value.why.startswith(f"process {holder.pid} on ")
        holder.kill()
    with locked(workspace):
        lock = (workspace.work / "lock").read_text()
    assert lock.startswith(f"process {os.getpid()} on ")


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_a_storage_error_with_a_hint(
    code: int, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match="cannot lock") as caught, locked(workspace):
        pytest.fail("there is no lock")
    assert caught.value.why == os.strerror(code)
    assert "choose a folder on a local file system" in caught.value.hint


def test_a_work_folder_that_cannot_be_removed_is_named_and_the_dataset_stays_complete(
    workspace: Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    with locked(workspace):
        fill(workspace.folder, "manifest.json", "work/left.json")
    assert "the dataset is complete, but" in caplog.text
    assert str(workspace.work) in caplog.text


def test_a_lock_stays_until_the_last_of_those_that_hold_it_together_has_ended(
    workspace: Workspace,
) -> None:
    """One that was stopped while others published may still write: nobody may overwrite that."""
    with locked(workspace, "together"):
        with locked(workspace, "together"):
            fill(workspace.folder, "manifest.json")
        refused = pytest.raises(OutputConflictError, match="another build is writing")
        with refused, locked(workspace, "alone"):
            pass
    assert tree(workspace.folder) == {"manifest.json"}
    assert not workspace.work.exists()


def test_a_sweep_leaves_the_lock_and_what_is_not_ours(workspace: Workspace) -> None:
    probes = ("work/probe-0a", "work/.probe-0a.link", "work/.job.json.0123456789abcdef.tmp")
    halves = (
        ".run.json.0123456789abcdef.tmp",
        "tokenizer/.tokenizer.json.0123456789abcdef.tmp",
        "work/claims/a.0",
    )
    fill(workspace.folder, *DATASET, *BUILD, *OTHERS, *probes, *halves)
    mine = {".thesis.backup.tmp", "tokenizer/.mine.tmp", "work/.0123456789abcdef.tmp"}
    fill(workspace.folder, *mine)
    sweep(workspace)
    assert tree(workspace.folder) == DATASET | OTHERS | mine


@pytest.mark.parametrize("name", ["tokens", "work"])
def test_a_folder_of_the_output_may_not_be_a_link_out_of_it(name: str, tmp_path: Path) -> None:
    fill(tmp_path, "elsewhere/lock", "out/manifest.json")
    (tmp_path / "out" / "manifest.json").write_bytes(DATASET_OUTPUT.start)
    (tmp_path / "out" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputConflictError, match="is a link to a place outside the output"):
        check_output(Workspace(tmp_path / "out"))

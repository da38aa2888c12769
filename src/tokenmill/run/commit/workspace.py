"""The place that a run writes to."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill.cloud.names import is_remote
from tokenmill.errors import OutputConflictError
from tokenmill.paths import local_path, refuse_non_utf8
from tokenmill.store.files import remove_folder, storage_errors
from tokenmill.store.manifest import MANIFEST_NAME, RUN_NAME
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.objects.opening import open_store

HALF_WRITTEN = re.compile(r"(manifest|counts|run)\.json\.\d+\.tmp|\.(manifest|run)\.json\.\w+\.tmp")
"""What a kill may leave beside the files that it was meant to become."""


@dataclass(frozen=True, slots=True)
class OutputKind:
    """What a run makes of its output folder, and what such a folder may hold."""

    manifest: str
    """The file that is written last."""
    start: bytes
    """How that file begins."""
    folders: tuple[str, ...]
    files: str
    """A glob of the other files that it is made of; "" if they are all in folders."""
    noun: str
    """For errors."""
    the: str
    other: str


DATASET_OUTPUT = OutputKind(
    manifest=MANIFEST_NAME,
    start=b'{\n  "format": "tokenmill",\n',
    folders=("tokens", "documents", "rejected", "tokenizer", "plans", "work"),
    files="",
    noun="dataset",
    the="the dataset",
    other="another dataset",
)


JOB_NAME = "work/job.json"
"""What the run was started with: from then on it is begun."""


@dataclass(frozen=True, slots=True)
class Workspace:
    """Where a run keeps what is not yet a dataset, or whatever it makes."""

    folder: Path
    """The output; for a bucket, a local folder of this agent for its own files."""
    kind: OutputKind = DATASET_OUTPUT
    bucket: ObjectStore | None = None
    """The output, if it is not a folder."""
    life: str = field(default_factory=lambda: secrets.token_hex(4))
    """Tells this agent's files from those of all others."""

    @property
    def store(self) -> ObjectStore:
        """The output."""
        return self.bucket or FolderStore(self.folder)

    @property
    def location(self) -> str:
        """The output, for people."""
        return self.store.location

    @property
    def work(self) -> Path:
        """Everything that goes away when the dataset is complete."""
        return self.folder / "work"

    @property
    def lock(self) -> Path:
        """Held while a build lives."""
        return self.work / "lock"

    @property
    def attempts(self) -> Path:
        """The scratch folders of all agents."""
        return self.work / "attempts"

    @property
    def scratch(self) -> Path:
        """Shards while they are written, and spool files: of this agent alone."""
        return self.attempts / self.life

    @property
    def shards(self) -> Path:
        """Finished files that the output does not keep, under the names of their units."""
        return self.work / "shards"

    def is_complete(self) -> bool:
        """Whether what the run makes exists."""
        return self.store.size(self.kind.manifest) is not None

    def is_begun(self) -> bool:
        """Whether there is a run to be continued."""
        return self.store.size(JOB_NAME) is not None

    def create(self, *, alone: bool = True) -> None:
        """Make the folders, and clear what an earlier attempt left half done.

        If an agent is not `alone`, what it finds may be another's.
        """
        with storage_errors("create the output folder", self.folder):
            if alone:
                shutil.rmtree(self.attempts, ignore_errors=True)
                sweep_unfinished(self.folder)
            self.scratch.mkdir(parents=True, exist_ok=True)

    def make_room(self, *, overwrite: bool) -> None:
        """Remove what may not be there when a run begins."""
        if overwrite or not (self.is_complete() or self.is_begun()):
            self.remove_output()  # or what an interrupted --overwrite has left

    def remove_output(self) -> None:
        """Remove a dataset or a build, or whatever the run makes.

        The manifest goes first, and what the run was started with last.
        """
        with storage_errors(f"remove the old {self.kind.noun}", self.folder):
            for name in (self.kind.manifest, RUN_NAME):
                (self.folder / name).unlink(missing_ok=True)
            for path in self.folder.glob(self.kind.files) if self.kind.files else ():
                path.unlink()
            for name in self.kind.folders:
                if name != "work":
                    remove_folder(self.folder / name)
            for path in (self.folder / name for name in WORK_FOLDERS):
                remove_folder(path)
            for path in sorted(self.work.glob("*.json"), key=lambda path: path.name == "job.json"):
                path.unlink()


WORK_FOLDERS = tuple(
    f"work/{name}"
    for name in (
        *("attempts", "shards", "receipts", "streams", "claims"),
        *("agents", "damaged", "failed", "agreed"),
    )
)
"""What a run keeps below `work/` until it is finished, beside single files."""


def sweep_unfinished(folder: Path) -> None:
    """Remove what a kill has left of files that were to appear whole."""
    for name in ("", "work", "tokenizer", *WORK_FOLDERS):
        for path in (folder / name).glob(".*.tmp"):
            if path.is_file():
                path.unlink(missing_ok=True)
    for path in folder.glob("*.tmp"):
        if HALF_WRITTEN.fullmatch(path.name):
            path.unlink(missing_ok=True)
    for path in (folder / "tokenizer").glob("*.tmp"):
        path.unlink(missing_ok=True)


def check_output(workspace: Workspace) -> None:
    """Raise an OutputConflictError where the output holds anything but a dataset or a build."""
    out, noun = workspace.folder, workspace.kind.noun
    if workspace.bucket is not None:
        from tokenmill.cloud.client import open_client  # imports what talks to servers

        names = open_client(workspace.location).names()
    else:
        if out.is_symlink() and not out.exists():
            raise OutputConflictError("the output is a broken link", where=str(out))
        if out.exists() and not out.is_dir():
            raise OutputConflictError("the output is a file", where=str(out))
        _refuse_links(workspace)
        names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if names and not (is_finished(workspace) or _may_be_begun(workspace, names)):
        plural = noun if noun.endswith("s") else f"{noun}s"
        raise OutputConflictError(
            f"the output folder is not empty and holds no {noun}",
            where=workspace.location,
            why=f"it holds {sorted(names)[0]!r}",
            hint=f"choose another folder; --overwrite replaces {plural} only",
        )


def _refuse_links(workspace: Workspace) -> None:
    """A folder of the output that is a link to elsewhere would be written to, and swept, there."""
    root = Path(os.path.realpath(workspace.folder))
    for name in workspace.kind.folders:
        real = Path(os.path.realpath(root / name))
        if not real.is_relative_to(root):
            raise OutputConflictError(
                f"the folder {name!r} of the output is a link that leads out of it",
                where=str(workspace.folder / name),
                why=f"it points to {real}, and whatever is named like a part would be replaced",
                hint="remove the link; the whole output folder may be a link",
            )


@contextmanager
def open_workspace(
    out: str | Path, kind: OutputKind = DATASET_OUTPUT, *, scratch: str | None = None
) -> Iterator[Workspace]:
    """The place for what a run makes. `scratch` is a folder for the files of an agent while it
    writes to a bucket; None: the system's temporary folder.

    Raises:
        UserError: its name cannot be used.
        OutputConflictError: it holds something else.
    """
    with contextlib.ExitStack() as stack:
        if is_remote(str(out)):
            bucket = open_store(str(out))
            with storage_errors("make a scratch folder", Path(scratch or tempfile.gettempdir())):
                folder = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix="tokenmill-", dir=scratch)
                )
            workspace = Workspace(Path(folder), kind, bucket)
        else:
            path = local_path(out, "the output folder")
            refuse_non_utf8(Path(os.path.realpath(path)), "the output folder")
            workspace = Workspace(path, kind)
        check_output(workspace)
        yield workspace


def is_finished(workspace: Workspace) -> bool:
    """Whether an output holds what its kind says, by the first bytes of the file that says it."""
    name, start = workspace.kind.manifest, workspace.kind.start
    if workspace.bucket is not None:
        return workspace.bucket.size(name) is not None
    path = workspace.folder / name
    with open(path if path.is_file() else os.devnull, "rb") as file:
        return file.read(len(start)) == start


def _may_be_begun(workspace: Workspace, names: set[str]) -> bool:
    """A run that has not finished holds nothing but what its kind of output may hold.

    In a folder its first step makes the empty folder `work`, the second the lock in it.
    """
    work, kind = workspace.work, workspace.kind
    if workspace.bucket is None and names == {"work"} and work.is_dir() and not any(work.iterdir()):
        return True
    strangers = names - {*kind.folders, RUN_NAME}
    return (workspace.bucket is not None or workspace.lock.is_file()) and all(
        HALF_WRITTEN.fullmatch(name) or fnmatch.fnmatchcase(name, kind.files) for name in strangers
    )

"""Reading the manifest, run.json and plans of a dataset to copy, without trusting them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenmill.core.errors import TokenmillError, VerificationError
from tokenmill.core.paths import is_safe_path
from tokenmill.store.canonical import RESTORE, read_sealed
from tokenmill.store.copying.ends import PLAN_FILE, PLANS, CopyEnd
from tokenmill.store.manifest import (
    MANIFEST_NAME,
    RUN_NAME,
    FileEntry,
    Manifest,
    Run,
    read_manifest,
)
from tokenmill.store.manifest_checks import check_manifest
from tokenmill.store.plan import ARRAYS, PLAN_FORMAT, PLAN_VERSION, PlanManifest


@dataclass(frozen=True, slots=True)
class CopiedPlan:
    """A plan of the source dataset."""

    name: str
    data: bytes
    """The bytes of plan.json."""
    files: list[FileEntry]
    """The arrays of the plan; names are relative to the dataset."""


def damaged(end: CopyEnd, name: str, why: str) -> VerificationError:
    """Return the error for a damaged file."""
    where = f"{end.location}/{name}"
    return VerificationError("a file of the dataset is damaged", where=where, why=why, hint=RESTORE)


def read_manifest_of(end: CopyEnd) -> tuple[bytes, Manifest]:
    """Return the bytes of the source's manifest, and the checked manifest."""
    data = end.store.read(MANIFEST_NAME)
    with _as_folder(end, MANIFEST_NAME, data) as folder:
        manifest = read_manifest(folder)
        check_manifest(folder, manifest)
    assert data is not None, "read_manifest raises if there is no manifest"
    return data, manifest


def read_run(end: CopyEnd) -> bytes:
    """Return the bytes of run.json after checking them."""
    data = end.store.read(RUN_NAME)
    if data is None:
        raise damaged(end, RUN_NAME, "it is missing")
    with _as_folder(end, RUN_NAME, data) as folder:
        read_sealed(folder / RUN_NAME, Run)
    return data


def read_plan(end: CopyEnd, name: str, dataset_id: str) -> CopiedPlan:
    """Read a plan of the source; its files must be exactly those of a plan."""
    place = f"{PLANS}/{name}"
    data = end.store.read(f"{place}/{PLAN_FILE}") if is_safe_path(name) else None
    with _as_folder(end, f"{place}/{PLAN_FILE}", data) as folder:
        path = folder / PLANS / name / PLAN_FILE
        manifest = read_sealed(path, PlanManifest, (PLAN_FORMAT, PLAN_VERSION))
    if manifest.dataset_id != dataset_id:
        raise damaged(end, f"{place}/{PLAN_FILE}", "the plan belongs to a different dataset")
    if [file.name for file in manifest.files] != [f"{array}.npy" for array in ARRAYS]:
        raise damaged(end, f"{place}/{PLAN_FILE}", "it names files that do not belong to a plan")
    files = [msgspec.structs.replace(file, name=f"{place}/{file.name}") for file in manifest.files]
    assert data is not None, "read_sealed raises if the file is missing"
    return CopiedPlan(name, data, files)


@contextmanager
def _as_folder(end: CopyEnd, name: str, data: bytes | None) -> Iterator[Path]:
    """Provide a folder with one file; its errors name the original location instead."""
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as temporary:
        path = Path(temporary, name)
        if data is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        try:
            yield Path(temporary)
        except TokenmillError as error:
            where = error.where.replace(temporary, end.location, 1)
            raise type(error)(error.what, where=where, why=error.why, hint=error.hint) from error

"""Copy a dataset file by file, with verified digests. A stopped copy can be resumed.

    copy.json       first, created once: names the manifest that is being copied
    tokens/ ...     each file whole or absent, after its digest was compared with the manifest
    plans/NAME/     arrays, then plan.json
    run.json        checked with its own digest
    manifest.json   last, created once: the destination is now a dataset, and copy.json is removed

If a file exists with the right size, an earlier run copied it: only whole files get their name.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import xxhash

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.records import Advance
from tokenmill.store.canonical import canonical_json
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.copying.contents import (
    CopiedPlan,
    read_manifest_of,
    read_plan,
    read_run,
)
from tokenmill.store.copying.ends import PLAN_FILE, PLANS, CopyEnd, open_end
from tokenmill.store.copying.transfer import Transfer
from tokenmill.store.manifest import MANIFEST_NAME, RUN_NAME
from tokenmill.store.manifest_checks import check_file_names
from tokenmill.store.ownership import sweep_temporaries

COPY_NAME = "copy.json"
FILES_AT_ONCE = 8


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a copy."""

    dataset_id: str
    files: int
    """Number of files of the dataset and its plans, without the JSON files that describe them."""
    bytes: int
    copied_files: int
    """Number of files that the destination did not have before."""
    copied_bytes: int
    plans: int


def copy_dataset(
    source: str | Path,
    destination: str | Path,
    *,
    verify: bool = False,
    files_at_once: int = FILES_AT_ONCE,
    advance: Advance = lambda stage, done, total: None,
) -> CopyReport:
    """Copy a dataset and its plans between folders and prefixes of buckets, in any direction.

    Every file is compared with its digest while it is read. If a copy is interrupted, the same
    call copies the missing files. With `verify`, the destination is read back as well, and damaged
    files are copied again.

    Raises:
        UserError: the dataset does not exist, or a location cannot be used.
        OutputConflictError: the destination has other content.
        VerificationError: a file of the source or a copied file is damaged.
        StorageError: a location fails; the same call resumes.
    """
    origin, target = open_end(source, "a dataset"), open_end(destination, "the destination")
    if not target.can_list:
        why = "tokenmill can only read from web servers"
        raise UserError("cannot copy to this location", where=target.location, why=why)
    _refuse_nested(origin, target)
    data, manifest = read_manifest_of(origin)
    plans = [read_plan(origin, name, manifest.dataset_id) for name in origin.plans()]
    run = read_run(origin)
    check_file_names(origin.location, manifest.files)
    _claim(target, data, manifest.dataset_id)
    for plan in plans:
        _refuse_other(target, f"{PLANS}/{plan.name}/{PLAN_FILE}", plan.data)
    transfer = Transfer(origin, target, verify=verify, files_at_once=files_at_once, advance=advance)
    files = [*manifest.files, *(file for plan in plans for file in plan.files)]
    transfer.run(files, fresh=_arrays_without_plan(target, plans))
    for plan in plans:
        _create(target, f"{PLANS}/{plan.name}/{PLAN_FILE}", plan.data)
    if target.store.read(RUN_NAME) is None:
        target.store.create(RUN_NAME, run)
    _create(target, MANIFEST_NAME, data)
    target.store.remove([COPY_NAME])
    if (root := target.path("")) is not None:
        sweep_temporaries({root, *((root / file.name).parent for file in files)})
    return CopyReport(
        dataset_id=manifest.dataset_id,
        files=len(files),
        bytes=sum(file.bytes for file in files),
        copied_files=transfer.copied_files,
        copied_bytes=transfer.copied_bytes,
        plans=len(plans),
    )


def _refuse_nested(origin: CopyEnd, target: CopyEnd) -> None:
    """Raise a UserError if the locations are equal, or one contains the other."""
    places = [f"{_resolved(end.location)}/" for end in (origin, target)]
    if places[0].startswith(places[1]) or places[1].startswith(places[0]):
        raise UserError(
            "a dataset cannot be copied into itself",
            where=target.location,
            why=f"the dataset is {origin.location}",
            hint="choose a destination outside the dataset that does not contain it",
        )


def _resolved(location: str) -> str:
    return location if is_remote(location) else str(Path(location).resolve())


def _claim(target: CopyEnd, manifest: bytes, dataset_id: str) -> None:
    """Record which dataset is being copied to the target, unless it is already there.

    Raises:
        OutputConflictError: the target has other content.
    """
    held = target.store.read(MANIFEST_NAME)
    if held is not None:
        if held != manifest:
            raise _conflict(target, "it contains a different dataset")
        return
    note = canonical_json(
        {
            "format": "tokenmill-copy",
            "format_version": 1,
            "dataset_id": dataset_id,
            "manifest_xxh3_128": xxhash.xxh3_128_hexdigest(manifest),
        }
    )
    if target.store.read(COPY_NAME) is None and not target.is_empty():
        raise _conflict(target, "it is not empty, and it is not an unfinished copy")
    if target.store.create(COPY_NAME, note) != note:
        raise _conflict(target, "it contains an unfinished copy of a different dataset")


def _conflict(target: CopyEnd, why: str) -> OutputConflictError:
    hint = "choose another destination, or delete its content"
    what = "the destination is not empty"
    return OutputConflictError(what, where=target.location, why=why, hint=hint)


def _create(target: CopyEnd, name: str, data: bytes) -> None:
    if target.store.create(name, data) != data:
        raise _conflict(target, f"another program created {name}")


def _refuse_other(target: CopyEnd, name: str, data: bytes) -> None:
    held = target.store.read(name)
    if held is not None and held != data:
        raise _conflict(target, f"{name} belongs to a different plan")


def _arrays_without_plan(target: CopyEnd, plans: Sequence[CopiedPlan]) -> set[str]:
    """Return arrays without a plan.json at the target: another plan may have left them."""
    return {
        file.name
        for plan in plans
        if target.store.read(f"{PLANS}/{plan.name}/{PLAN_FILE}") is None
        for file in plan.files
    }

"""Checks an export: its files against its manifest, and what they hold against the dataset."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import UNSET

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.records import Advance
from tokenmill.core.values import counted
from tokenmill.load.export.folder import links_of
from tokenmill.load.export.verifying.comparing import REPAIR, Comparison, damaged_export
from tokenmill.load.export.verifying.documents import compare_documents
from tokenmill.load.export.verifying.rows import compare_rows
from tokenmill.store.dataset import PLAN_NAME, Dataset, folders_at, is_dataset
from tokenmill.store.digests import file_digest
from tokenmill.store.exports import EXPORT_NAME, AnyManifest, ExportManifest, read_export
from tokenmill.store.files import sizes_inside, storage_errors
from tokenmill.store.plan import Plan, open_plan
from tokenmill.store.temporary import dataset_at

MAX_PROBLEMS = 20


def check_export(
    folder: str | Path,
    dataset: str | Path | None = None,
    *,
    sample: float = 1.0,
    advance: Advance = lambda stage, done, total: None,
) -> Comparison:
    """Check the files of an export, and compare all they hold with its dataset.

    With a `sample` below 1, a share of each file is compared, and no digests of files. `advance` is
    called with bytes.

    Raises:
        UserError: the dataset or the plan of the export is not found.
        VerificationError: something differs.
    """
    folder = local_path(folder, "an export")
    with storage_errors("read the export", folder):
        manifest = read_export(folder)
        _check_files(folder, manifest, sample, advance)
        with _dataset_of(folder, manifest, dataset) as found:
            checked = Comparison(folder, manifest, found, sample, advance)
            if isinstance(manifest, ExportManifest):
                compare_rows(checked, manifest, _plan_of(folder, manifest, found))
            else:
                compare_documents(checked, manifest)
    return checked


def _check_files(folder: Path, manifest: AnyManifest, sample: float, advance: Advance) -> None:
    """Check names, sizes and digests.

    Raises:
        VerificationError: some differ; it lists which.
    """
    files = {entry.name: entry for entry in manifest.files}
    problems = {
        name: "it is missing" if size is None else f"it has {size} bytes, not {files[name].bytes}"
        for name, size in sizes_inside(folder, files)
        if size != files[name].bytes
    }
    # Hidden files and a dataset card come from the Hub's tools; readers of rows pass them by.
    known = {EXPORT_NAME, "README.md", *files, *links_of(manifest)}
    strangers = {each.name for each in folder.iterdir() if not each.name.startswith(".")} - known
    problems |= dict.fromkeys(sorted(strangers), "it is not part of the export")
    done, total = 0, sum(entry.bytes for entry in manifest.files)

    def read(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        advance("files", done, total)

    for name in files.keys() - problems.keys() if sample == 1 else ():
        if file_digest(folder / name, read) != files[name].xxh3_128:
            problems[name] = "its digest differs"
    if problems:
        lines = [f"{name}: {why}" for name, why in sorted(problems.items())]
        what, hint = f"the export has {counted(len(lines), 'damaged file')}", REPAIR
        if problems.keys() <= strangers:
            what = f"the export has {counted(len(lines), 'file')} too many"
            hint = "move out what another tool wrote, such as caches, and verify again"
        raise damaged_export(what, folder, "\n       ".join(lines[:MAX_PROBLEMS]), hint)


@contextmanager
def _dataset_of(folder: Path, manifest: AnyManifest, given: str | Path | None) -> Iterator[Dataset]:
    """Open the dataset of an export: the given one, or that at the stored place."""
    hint = "name it with --dataset (dataset= in Python)"
    name, wanted = given, manifest.dataset_id
    if name is None:
        what, place = "cannot find the dataset of the export", manifest.dataset_place
        if place is UNSET:
            why = f"it does not say where dataset {wanted} is"
            raise UserError(what, where=str(folder), why=why, hint=hint)
        places = folders_at(folder, place)
        name = next((each for each in places if is_dataset(each)), None)
        if name is None:
            why = f"{EXPORT_NAME} says {place}, and no dataset is at {places[0]}"
            raise UserError(what, where=str(folder), why=why, hint=hint)
    with dataset_at(name) as dataset:
        if dataset.manifest.dataset_id != wanted:
            what = "the export was made of another dataset"
            why = f"it was made of {wanted}, and {name} is {dataset.manifest.dataset_id}"
            hint = "name the right one with --dataset (dataset= in Python)"
            raise UserError(what, where=str(folder), why=why, hint=hint)
        yield dataset


def _plan_of(folder: Path, manifest: ExportManifest, dataset: Dataset) -> Plan:
    """Open the plan of exported rows, from its stored place or the plans of the dataset."""
    place = manifest.plan_place
    folders = [] if place is UNSET else folders_at(folder, place)
    names = [str(each) for each in folders if (each / PLAN_NAME).is_file()]
    for name in [*names, *dataset.plans]:
        plan = open_plan(dataset, name)
        if plan.manifest.plan_id == manifest.plan_id:
            return plan
    raise UserError(
        "cannot find the plan of the export",
        where=str(folder),
        why=f"it was made of plan {manifest.plan_id}",
        hint=f"put the plan back, into {dataset.folder / 'plans'}",
    )

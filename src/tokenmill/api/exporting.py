"""The export at the end of a build: the rows of its plans, written as files."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
from msgspec import UNSET

from tokenmill.core.errors import OutputConflictError
from tokenmill.core.records import Advance
from tokenmill.load.export.folder import export_at
from tokenmill.load.export.rows.exporting import ExportReport, export
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.tasks.encode import BuildReport
from tokenmill.store.exports import ExportOptions
from tokenmill.store.plan import open_plan
from tokenmill.store.temporary import dataset_at


def check_export(recipe: Recipe) -> None:
    """Check before a build that its export can work.

    Raises:
        OutputConflictError: the folder for the rows holds something that is not an export.
    """
    if recipe.export is UNSET:
        return
    out = Path(recipe.export.out)
    if not _by_subset(recipe) and (out.exists() or out.is_symlink()):
        export_at(out)


def export_plans(
    recipe: Recipe,
    report: BuildReport,
    *,
    overwrite: bool = False,
    advance: Advance = lambda stage, done, total: None,
) -> tuple[ExportReport, ...]:
    """Export the plans of a build; with a validation subset, each subset to its own folder.

    Raises:
        TokenmillError: as for `tokenmill.export`; the same call resumes.
    """
    if recipe.export is UNSET or not report.plans:
        return ()
    out, options = Path(recipe.export.out), recipe.export.options
    by_subset = _by_subset(recipe)
    made = []
    with dataset_at(report.out) as dataset:
        for each in report.plans:
            plan = open_plan(dataset, each.plan.folder.name)
            folder = out / str(plan.manifest.options["subset"]) if by_subset else out
            try:
                made.append(
                    export(dataset, plan, folder, options, overwrite=overwrite, advance=advance)
                )
            except OutputConflictError as error:
                if "--overwrite" not in error.hint:
                    raise
                command = _overwriting(report.out, each.plan.folder.name, folder, options)
                hint = f"choose another folder, or replace it: {command}"
                raise OutputConflictError(
                    error.what, where=error.where, why=error.why, hint=hint
                ) from error
    return tuple(made)


def _by_subset(recipe: Recipe) -> bool:
    """Whether each subset has its own plan, and so its own folder of rows."""
    return bool(recipe.read.validation) and recipe.pack.subset is None


def _overwriting(dataset: str, plan: str, out: Path, options: ExportOptions) -> str:
    """The command that replaces only the rows: a build with --overwrite replaces its dataset."""
    command = ["tokenmill", "export", dataset, "--plan", plan, "--out", str(out)]
    for name, value in msgspec.structs.asdict(options).items():
        if value != getattr(ExportOptions(), name):
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            command += [f"--{name.replace('_', '-')}", *([] if value is True else [text])]
    return shlex.join([*command, "--overwrite"])

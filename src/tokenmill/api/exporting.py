"""The last stage of a build: the rows of its plans as files."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
from msgspec import UNSET

from tokenmill.errors import OutputConflictError
from tokenmill.export.rows import ExportReport, export
from tokenmill.records import Advance
from tokenmill.run.build_report import BuildReport
from tokenmill.run.recipe.options import Recipe
from tokenmill.store.exports import ExportOptions
from tokenmill.store.plan import open_plan
from tokenmill.store.temporary import dataset_at


def export_plans(
    recipe: Recipe,
    report: BuildReport,
    *,
    overwrite: bool = False,
    advance: Advance = lambda stage, done, total: None,
) -> tuple[ExportReport, ...]:
    """Export what a recipe asks for; with a validation subset, each into a folder of its name.

    Raises:
        TokenmillError: as for `tokenmill.export_rows`; the same call continues.
    """
    if recipe.export is UNSET or not report.plans:
        return ()
    out, options = Path(recipe.export.out), recipe.export.options
    by_subset = recipe.read.validation and recipe.pack.subset is None
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


def _overwriting(dataset: str, plan: str, out: Path, options: ExportOptions) -> str:
    """The command that replaces rows alone; a build with --overwrite replaces its dataset, too."""
    command = ["tokenmill", "export", dataset, "--plan", plan, "--out", str(out)]
    for name, value in msgspec.structs.asdict(options).items():
        if value != getattr(ExportOptions(), name):
            text = ",".join(value) if isinstance(value, tuple) else str(value)
            command += [f"--{name.replace('_', '-')}", text]
    return shlex.join([*command, "--overwrite"])

"""The last stage of a build: the rows of its plans as files."""

from __future__ import annotations

from pathlib import Path

from msgspec import UNSET

from tokenmill.export.rows import ExportReport, export
from tokenmill.records import Advance
from tokenmill.run.build_report import BuildReport
from tokenmill.run.recipe.options import Recipe
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
            made.append(
                export(dataset, plan, folder, options, overwrite=overwrite, advance=advance)
            )
    return tuple(made)

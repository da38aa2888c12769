"""`tokenmill.pack`, `compare_plans` and `export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.api.datasets import Dataset, opened
from tokenmill.core.errors import UserError
from tokenmill.core.options import make_options
from tokenmill.load.export import rows
from tokenmill.packing import planning
from tokenmill.packing.comparison import Compared, compare
from tokenmill.packing.planning import PlanReport
from tokenmill.run.recipe.checks import make_pack_options, naming_arguments
from tokenmill.store.exports import ExportManifest, ExportOptions
from tokenmill.store.plan import Plan, chosen_plan

if TYPE_CHECKING:
    from tokenmill.api.options import ExportArguments, PackArguments


def pack(
    dataset: Dataset | str | Path,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    **options: Unpack[PackArguments],
) -> PlanReport:
    """Plan training sequences: choose which part of which document goes into which sequence.

    The options of `tokenmill pack` are keyword arguments.

    Args:
        dataset: a dataset or its folder.
        name: name of the plan, in the folder `plans/` of the dataset. By default it names the
            strategy and the length.
        folder: folder for the plan, if it does not belong into the dataset.
        overwrite: replace an existing plan.
        options: the options of `tokenmill pack`, with underscores, for example
            `sequence_length`, `packing` and `long_documents`.

    Raises:
        UserError: an option is wrong, or the strategy cannot meet the options.
        OutputConflictError: another plan has this name.
        VerificationError: the dataset is damaged.
    """
    if name is not None and folder is not None:
        raise UserError("a plan takes either a name or a folder, not both", hint="give one of them")
    found = opened(dataset)
    place = folder or None
    if name is not None:
        place = planning.named_plan_folder(found, name)
    with naming_arguments():
        return planning.pack(found, make_pack_options(options), place, overwrite=overwrite)


def compare_plans(
    dataset: Dataset | str | Path, **options: Unpack[PackArguments]
) -> list[Compared]:
    """Plan with every strategy and return their figures. Writes nothing.

    Options are those of `pack`.

    Args:
        dataset: a dataset or its folder.
        options: as for `pack`, without `packing`.

    Raises:
        UserError: an option is wrong.
        VerificationError: the dataset is damaged.
    """
    with naming_arguments():
        return compare(opened(dataset), make_pack_options(options, to_compare=True))


def export(
    dataset: Dataset | str | Path,
    out: str | Path,
    *,
    plan: Plan | str | Path | None = None,
    overwrite: bool = False,
    **options: Unpack[ExportArguments],
) -> ExportManifest:
    """Write the rows of a plan as npy, pt, Parquet or Arrow files.

    If an export was interrupted, the same call resumes it. If it is complete, nothing is written.
    The options of `tokenmill export` are keyword arguments.

    Args:
        dataset: a dataset or its folder.
        out: folder for the files.
        plan: a plan, its name or its folder. If the dataset has a single plan, you can omit it.
        overwrite: replace an existing export.
        options: the options of `tokenmill export`, with underscores, for example `format`,
            `columns` and `max_sequences`.

    Returns:
        The manifest of the export: files, digests, columns and their dtypes.

    Raises:
        UserError: an option is wrong, or the plan belongs to another dataset.
        OutputConflictError: `out` holds something else.
        StorageError: a file could not be written.
    """
    chosen = make_options(ExportOptions, options, "the export")
    source = opened(dataset)
    found = chosen_plan(source, plan)
    return rows.export(source, found, out, chosen, overwrite=overwrite).manifest

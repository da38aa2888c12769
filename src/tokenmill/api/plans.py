"""`tokenmill.pack`, `compare_plans`, `export` and `export_documents`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.api.datasets import Dataset, opened
from tokenmill.core.errors import UserError
from tokenmill.core.options import make_options
from tokenmill.load.export.documents import exporting as documents
from tokenmill.load.export.hub import publishing as hub
from tokenmill.load.export.rows import exporting as rows
from tokenmill.load.rest import State
from tokenmill.load.rest import rest_of as rest_of_state
from tokenmill.packing import planning
from tokenmill.packing.comparison import Compared, compare
from tokenmill.packing.planning import PlanReport
from tokenmill.read.places.hub.names import PREFIX
from tokenmill.run.recipe.checks import make_pack_options, naming_arguments
from tokenmill.store import dataset as _store
from tokenmill.store.exports import (
    DocumentOptions,
    DocumentsManifest,
    ExportManifest,
    ExportOptions,
)
from tokenmill.store.plan import Plan, chosen_plan

if TYPE_CHECKING:
    from tokenmill.api.options import DocumentArguments, ExportArguments, PackArguments

Some = _store.Dataset | str | Path


def pack(
    dataset: Dataset | str | Path,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    rest_of: State | None = None,
    source: int | str | None = None,
    rest_datasets: Sequence[Some] = (),
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
        rest_of: the state of a loader, or a JSON file with it: plan what its epoch has not given
            yet. The dataset is that of the state, or a view of it.
        source: for the state of a mixture, the name or the number of a source, or the name of its
            plan. It can be omitted if only one source belongs to the dataset.
        rest_datasets: datasets of the run that are no longer where they were.
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
        chosen = make_pack_options(options)
        rest = None
        if rest_of is not None:
            rest = rest_of_state(found, rest_of, source=source, datasets=rest_datasets)
        return planning.pack(found, chosen, place, rest=rest, overwrite=overwrite)


def compare_plans(
    dataset: Dataset | str | Path,
    *,
    rest_of: State | None = None,
    source: int | str | None = None,
    rest_datasets: Sequence[Some] = (),
    **options: Unpack[PackArguments],
) -> list[Compared]:
    """Plan with every strategy and return their figures. Writes nothing.

    Options are those of `pack`.

    Args:
        dataset: a dataset or its folder.
        rest_of: as for `pack`, like `source` and `rest_datasets`.
        source: for the state of a mixture.
        rest_datasets: datasets of the run that are no longer where they were.
        options: as for `pack`, without `packing`.

    Raises:
        UserError: an option is wrong.
        VerificationError: the dataset is damaged.
    """
    found = opened(dataset)
    with naming_arguments():
        chosen = make_pack_options(options, to_compare=True)
        rest = None
        if rest_of is not None:
            rest = rest_of_state(found, rest_of, source=source, datasets=rest_datasets)
        return compare(found, chosen, rest=rest)


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
        out: folder for the files, or hf://datasets/OWNER/NAME[@BRANCH].
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
    if str(out).startswith(PREFIX):
        return hub.publish(source, found, str(out), chosen, overwrite=overwrite).manifest
    return rows.export(source, found, out, chosen, overwrite=overwrite).manifest


def export_documents(
    dataset: Dataset | str | Path,
    out: str | Path,
    *,
    overwrite: bool = False,
    **options: Unpack[DocumentArguments],
) -> DocumentsManifest:
    """Write the documents of a dataset or a view for Megatron or nanoGPT, by subset.

    If an export was interrupted, the same call resumes it. If it is complete, nothing is written.
    The options of `tokenmill export` for documents are keyword arguments.

    Args:
        dataset: a dataset or a view, or its folder.
        out: folder for the files.
        overwrite: replace an existing export.
        options: the options of `tokenmill export`, with underscores, for example `format`,
            `order` and `file_size`.

    Returns:
        The manifest of the export: files, documents and tokens of each, arguments for trainers.

    Raises:
        UserError: an option is wrong, or the dataset has no documents.
        OutputConflictError: `out` holds something else.
        VerificationError: the dataset is damaged.
        StorageError: a file could not be written.
    """
    chosen = make_options(DocumentOptions, options, "the export")
    return documents.export_documents(opened(dataset), out, chosen, overwrite=overwrite).manifest

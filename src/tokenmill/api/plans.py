"""Planning sequences, and writing their rows as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import msgspec

from tokenmill.api.datasets import Dataset, opened
from tokenmill.errors import UserError
from tokenmill.export.rows import export
from tokenmill.planning.comparison import Compared, compare
from tokenmill.planning.packing import PlanReport, named_plan_folder, pack
from tokenmill.run.recipe.checks import make_pack_options
from tokenmill.store.exports import ExportManifest, ExportOptions
from tokenmill.store.plan import Plan, open_plan
from tokenmill.suggestions import nearest
from tokenmill.valid_values import refusal

if TYPE_CHECKING:
    from tokenmill.api.options import ExportArguments, PackArguments


def make_plan(
    dataset: Dataset | str | Path,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    **options: Unpack[PackArguments],
) -> PlanReport:
    """Plan sequences; options are those of `tokenmill pack`, with underscores.

    The plan goes to `plans/<name>` of the dataset, or to `folder`.

    Raises:
        TokenmillError: see `tokenmill.errors`.
    """
    if name is not None and folder is not None:
        raise UserError("a plan takes either a name or a folder, not both", hint="give one of them")
    found = opened(dataset)
    place = folder or None
    if name is not None:
        place = named_plan_folder(found, name)
    return pack(found, make_pack_options(options), place, overwrite=overwrite)


def compare_plans(
    dataset: Dataset | str | Path, **options: Unpack[PackArguments]
) -> list[Compared]:
    """What every strategy would make of the same options; writes nothing.

    Raises:
        TokenmillError: see `tokenmill.errors`.
    """
    return compare(opened(dataset), make_pack_options(options, to_compare=True))


def export_rows(
    dataset: Dataset | str | Path,
    plan: Plan | str | Path,
    out: str | Path,
    *,
    overwrite: bool = False,
    **options: Unpack[ExportArguments],
) -> ExportManifest:
    """Write the rows of a plan as files; options are those of `tokenmill export`.

    The same call continues an export that was stopped, and finds one that is complete.

    Raises:
        TokenmillError: see `tokenmill.errors`.
    """
    known = ExportOptions.__struct_fields__
    for name in sorted(set(options) - set(known)):
        close = nearest(name, known)
        raise UserError(
            f"unknown option of an export: {name}",
            why=f"the options are {', '.join(known)}",
            hint=f"did you mean {close}?" if close else "",
        )
    source = opened(dataset)
    found = plan if isinstance(plan, Plan) else open_plan(source, plan)
    try:
        chosen = msgspec.convert(options, ExportOptions)
    except msgspec.ValidationError as error:
        why = refusal(error, options, ExportOptions)
        raise UserError("invalid export option", why=why) from error
    return export(source, found, out, chosen, overwrite=overwrite).manifest

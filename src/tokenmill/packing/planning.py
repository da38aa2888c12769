"""Plan sequences: read document lengths of a dataset, pack them, write a plan."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.options import OptionError
from tokenmill.core.paths import output_path
from tokenmill.core.records import Advance
from tokenmill.core.values import counted
from tokenmill.encode.engine import Reference
from tokenmill.packing.document_choice import DocumentChoice
from tokenmill.packing.figures import Figures, Ledger
from tokenmill.packing.options import PackOptions
from tokenmill.packing.rest import REST_OF, Rest
from tokenmill.packing.shard_windows import window_of, windows_of
from tokenmill.packing.strategies import objections
from tokenmill.packing.window import PackedWindow, pack_window, row_format
from tokenmill.store.dataset import PLAN_NAME, Dataset
from tokenmill.store.files import remove_leftover
from tokenmill.store.objects.opening import open_store
from tokenmill.store.ownership import UNFINISHED_PLAN
from tokenmill.store.plan import (
    ARRAYS,
    Plan,
    PlanWriter,
    check_plan_folder,
    open_plan,
    plan_name_problem,
)
from tokenmill.store.stored_reference import open_reference

Table = npt.NDArray[np.bool_]

MOST_FIGURE = 1 << 96
"""Above every number in a plan. The attention cost can need more than 64 bits."""

# Closing marks may follow the end of a sentence; so may white space, which a token often holds.
_ENDS = {
    "sentence": re.compile(r"""[.!?…。！？।؟۔][)\]"'”’»」』]*\s*$|\n\s*$"""),
    "line": re.compile(r"\n\s*$"),
    "paragraph": re.compile(r"\n[^\S\n]*\n\s*$"),
}
_BLANK_LINE = re.compile(r"[^\S\n]*\n\s*")


@dataclass(frozen=True, slots=True, repr=False)
class PlanReport:
    """A plan and its figures, as returned by `pack`."""

    plan: Plan
    figures: Figures
    already_there: bool

    def __repr__(self) -> str:
        rows = f"{counted(self.figures.sequences, 'sequence')}, {self.figures.fill:.2%} full"
        return f"<PlanReport {str(self.plan.folder)!r}: {rows}>"

    def _repr_html_(self) -> str:
        """Return the table and the picture of the plan, for notebooks."""
        return self.plan._repr_html_()


def pack(
    dataset: Dataset,
    options: PackOptions,
    folder: str | Path | None = None,
    *,
    rest: Rest | None = None,
    overwrite: bool = False,
    advance: Advance = lambda stage, done, total: None,
) -> PlanReport:
    """Plan sequences for a dataset, or for the `rest` that a training run has not read yet.

    The default folder is `plans/<packing>-<length>`; for a rest, `-rest` is appended.
    A plan of a dataset in a bucket is made in its cache folder, and stored in the bucket as well.

    Raises:
        UserError: an option cannot be met.
        OutputConflictError: the folder holds another plan.
    """
    options = with_subset(dataset, options)
    if problems := list(objections(options)):
        raise OptionError("the plan", problems)
    folder = output_path(folder or plan_folder(dataset, options, rest), "the plan's folder")
    stored = options.stored() | ({} if rest is None else rest.stored())
    is_inside = folder.parent == dataset.folder / "plans"
    if is_inside and (problem := plan_name_problem(folder.name)):
        raise UserError("a plan cannot have this name", why=f"{folder.name!r} {problem}")
    is_stored = dataset.origin is not None and is_inside
    if is_stored and folder.name in dataset.plans:
        if overwrite:
            raise _cannot_replace(dataset, folder.name)
        open_plan(dataset, folder.name)  # downloads its arrays
    if not overwrite and (folder / PLAN_NAME).is_file():
        report = _already_there(dataset, stored, folder)
        remove_leftover(folder, UNFINISHED_PLAN.fullmatch)
        return report
    check_plan_folder(folder, overwrite=overwrite)
    if (folder / PLAN_NAME).is_file() and REST_OF in Plan(folder).manifest.options:
        raise OutputConflictError(
            "the plan of a rest cannot be replaced",
            where=str(folder),
            why="the state of a run may name it, and it could not be made again",
            hint="give the new plan another name: --name",
        )
    ledger = Ledger(options)
    with PlanWriter(folder, len(dataset.document_numbers)) as writer:
        windows = packed_windows(dataset, options, ledger, advance, rest)
        for first_document, num_shards, packed in windows:
            writer.append(packed.planned, first_document, num_shards)
        advance("writing", 0, 1)
        figures = ledger.figures()
        writer.finish(
            dataset.manifest.dataset_id,
            stored,
            msgspec.to_builtins(figures),
            row_format(options, figures.most_segments),
            overwrite=overwrite,
        )
    if is_stored:
        _store_in_bucket(dataset, folder)
    return PlanReport(Plan(folder), figures, already_there=False)


def place_of(plan: Plan, dataset: Dataset) -> str:
    """The place of a plan for messages: the bucket, not the cache folder."""
    if dataset.origin is None or plan.folder.parent != dataset.folder / "plans":
        return str(plan.folder)
    return f"{dataset.origin.location}/plans/{plan.folder.name}"


def _store_in_bucket(dataset: Dataset, folder: Path) -> None:
    """Upload a plan to its dataset: arrays first, and plan.json once, last."""
    assert dataset.origin is not None
    store, place = open_store(dataset.origin.location), f"plans/{folder.name}"
    store.add_files({f"{place}/{name}.npy": folder / f"{name}.npy" for name in ARRAYS})
    data = (folder / PLAN_NAME).read_bytes()
    if store.create(f"{place}/{PLAN_NAME}", data) != data:
        shutil.rmtree(folder)
        raise _cannot_replace(dataset, folder.name)


def _cannot_replace(dataset: Dataset, name: str) -> OutputConflictError:
    assert dataset.origin is not None
    return OutputConflictError(
        "a plan in a bucket cannot be replaced",
        where=f"{dataset.origin.location}/plans/{name}",
        why="loaders on other machines may be reading it",
        hint="give the new plan another name: --name",
    )


def with_subset(dataset: Dataset, options: PackOptions) -> PackOptions:
    """Fill in the default subset: train, if the dataset has a validation subset."""
    if options.subset is None and dataset.policies.read.validation:
        return msgspec.structs.replace(options, subset="train")
    return options


def pack_subsets(dataset: Dataset, options: PackOptions, advance: Advance) -> Iterator[PlanReport]:
    """Make the plans of a build: one, or one for each subset with documents."""
    both = options.subset is None and dataset.policies.read.validation
    if not both:
        yield pack(dataset, options, advance=advance)
        return
    for subset in ("train", "validation"):
        each = msgspec.structs.replace(options, subset=subset)
        if _any_documents(dataset, each):
            yield pack(dataset, each, advance=advance)


def plan_folder(dataset: Dataset, options: PackOptions, rest: Rest | None = None) -> Path:
    """The default folder of a plan."""
    subset = "-" + re.sub(r"[^\w.-]", "_", options.subset) if options.subset else ""
    name = f"{options.packing}-{options.length}{subset}{'-rest' if rest else ''}"
    return named_plan_folder(dataset, name)


def named_plan_folder(dataset: Dataset, name: str) -> Path:
    """The folder of a plan in its dataset.

    Raises:
        UserError: some file systems cannot hold the name.
    """
    if problem := plan_name_problem(name):
        raise UserError("a plan cannot have this name", why=f"{name!r} {problem}")
    return dataset.folder / "plans" / name


def _any_documents(dataset: Dataset, options: PackOptions) -> bool:
    """Whether any document can be packed."""
    choice = DocumentChoice(dataset, options)
    first = 0
    for shard in dataset.shards:
        if len(choice.choose(shard, first).documents):
            return True
        first += shard.entry.documents
    return False


def packed_windows(
    dataset: Dataset,
    options: PackOptions,
    ledger: Ledger,
    advance: Advance,
    rest: Rest | None = None,
) -> Iterator[tuple[int, int, PackedWindow]]:
    """Yield first document, number of shards and sequences of each window."""
    tables = None
    if options.long_documents == "split-at-boundary":
        tables = boundary_tables(dataset, options.split_at)
    done = 0
    choice = DocumentChoice(dataset, options)
    for parts in windows_of(choice, ledger, rest):
        window = window_of(parts, tables)
        packed = pack_window(window, options)
        ledger.add(packed)
        yield parts[0].first_document, len(parts), packed
        for part in parts:
            part.shard.release()
            done += part.shard.entry.documents
        advance("packing", done, len(dataset.document_numbers))
    if choice.missing_values:
        missing = ", ".join(map(repr, sorted(choice.missing_values)))
        why = f"no document has {missing} in {options.weight_by!r}"
        raise UserError("a weight names a value that no document has", why=why)
    if not ledger.totals.sequences:
        why = "every document is too long, and long documents are dropped"
        if not ledger.totals.documents:
            reasons = ledger.left_out.lost_documents.items()
            why = ", ".join(f"{count} documents left out: {reason}" for reason, count in reasons)
            why += f"; the requested subset is {options.subset!r}" if options.subset else ""
        raise UserError("nothing to pack", where=dataset.location, why=why)


def _already_there(dataset: Dataset, options: dict[str, Any], folder: Path) -> PlanReport:
    plan = Plan(folder)
    plan.check_arrays()
    same = plan.manifest.options == options
    if not same or plan.manifest.dataset_id != dataset.manifest.dataset_id:
        hint = "replace it with tokenmill pack --overwrite, or set another --name or --plan-out"
        why = "its dataset differs" if same else "its options differ"
        if REST_OF in plan.manifest.options:
            why, hint = "it is the rest of another step", "give the new plan another name: --name"
        raise OutputConflictError(
            "the plan's folder holds another plan", where=str(folder), why=why, hint=hint
        )
    return PlanReport(plan, figures_of(plan), already_there=True)


def figures_of(plan: Plan) -> Figures:
    """Return the figures stored in a plan.

    Raises:
        VerificationError: they are not those of a plan.
    """
    try:
        figures = msgspec.convert(plan.manifest.figures, Figures)
    except msgspec.ValidationError as error:
        raise plan.damaged(f"figures: {error}") from error
    for name, value in msgspec.structs.asdict(figures).items():
        for number in value.values() if isinstance(value, dict) else [value]:
            if number is not None and not -1 <= number < MOST_FIGURE:
                raise plan.damaged(f"figures: {name} is {number}")
    if (
        figures.left_out_documents.keys() != figures.left_out_tokens.keys()
        or figures.lost_documents.keys() != figures.lost_tokens.keys()
    ):
        raise plan.damaged("figures: documents and tokens have different reasons")
    return figures


def boundary_tables(dataset: Dataset, kind: str) -> tuple[Table, Table, Table]:
    """Return three tables of shape (largest id + 1,) that find boundaries after one or two tokens.

    The first is true of tokens whose text ends a sentence, line or paragraph. Many tokenizers
    part the two line ends of a paragraph: a token that ends a line (the second table) and a blank
    one (the third) end a paragraph together. The end of a line also ends a sentence, that of a
    paragraph a line.
    """
    reference = open_reference(dataset)
    texts = [_text_of(reference, token) for token in range(reference.largest_id + 1)]
    ends = np.array([_ENDS[kind].search(text) is not None for text in texts], np.bool_)
    opens, closes = np.zeros_like(ends), np.zeros_like(ends)
    if kind == "paragraph":
        opens = np.array([_ENDS["line"].search(text) is not None for text in texts], np.bool_)
        closes = np.array([_BLANK_LINE.fullmatch(text) is not None for text in texts], np.bool_)
    return ends, opens, closes


def _text_of(reference: Reference, token: int) -> str:
    """The text of a token; "" for unused ids, which cl100k has."""
    try:
        return reference.decode([token])
    except KeyError:
        return ""

"""The command line's verbs as functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokenmill.encode.tokenizer_file import tokenizer_name
from tokenmill.errors import UserError
from tokenmill.export.rows import ExportManifest, ExportOptions
from tokenmill.export.rows import export as _export
from tokenmill.load import masks
from tokenmill.load.batches import Batches
from tokenmill.load.columns import BatchOptions
from tokenmill.load.explanation import SegmentOrigin
from tokenmill.load.masked_lm import MaskedLM
from tokenmill.load.micro_batches import micro_batches
from tokenmill.load.opening import (
    OrderOptions,
    known_world_size,
    make_options,
    open_batches,
)
from tokenmill.load.opening import mix_batches as _mix_batches
from tokenmill.load.rows.reader import RowReader, Targets
from tokenmill.load.rows.segmentation import Segmentation
from tokenmill.load.steps.curriculum import Curriculum, Phase, shortened
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.load.text.options import TextStreamOptions
from tokenmill.load.text.stream import TextStream
from tokenmill.pack.figures import Figures
from tokenmill.pack.strategy import Pieces
from tokenmill.pack.streaming import StreamPacker
from tokenmill.permutation import Permutation
from tokenmill.planning.packing import Compared, PlanReport, compare, named_plan_folder, pack
from tokenmill.report.estimate import Estimate
from tokenmill.report.estimate import estimate as _estimate
from tokenmill.report.inspect import DocumentView, view_document
from tokenmill.report.tokenizers.check import check_tokenizer as _check_tokenizer
from tokenmill.report.verify import Verification, verify
from tokenmill.run.build import BuildEvents, BuildReport
from tokenmill.run.build import build as _build
from tokenmill.run.recipe import (
    Recipe,
    load_recipe,
    make_pack_options,
    make_recipe,
    section_of,
)
from tokenmill.store import dataset as _store
from tokenmill.store.plan import Plan, open_plan

if TYPE_CHECKING:
    from tokenmill.load.loader import Loader
    from tokenmill.load.text.loader import TextLoader


class Dataset(_store.Dataset):
    """A dataset, opened: its documents, and the batches of its plans."""

    def batches(self, plan: Plan | str | Path | None = None, **options: Any) -> Batches:
        """Batches of NumPy arrays; without a plan, those of the only one.

        Options are the fields of OrderOptions, BatchOptions and Targets, and `curriculum`.

        Raises:
            UserError: an option is wrong or unknown, or there is no such plan.
        """
        return open_batches(self, plan, **options)

    def loader(self, plan: Plan | str | Path | None = None, **options: Any) -> Loader:
        """`batches`, as PyTorch tensors: for a loop, a DataLoader, or a trainer."""
        with _needs_torch():
            from tokenmill.load.loader import Loader

        return Loader(self.batches(plan, **options))


def build(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: str | Path | object,
    out: str | Path,
    *,
    overwrite: bool = False,
    events: BuildEvents | None = None,
    **options: Any,
) -> BuildReport:
    """Build a dataset, or resume one; options are those of the command line, with underscores.

    `tokenizer` is a name, as on the command line, or an object: of `tokenizers`, of `transformers`,
    or any with `encode(text)`.

    Raises:
        TokenmillError: see `tokenmill.errors`; the same call resumes.
    """
    made = recipe(inputs, tokenizer, out, **options)
    report = _build(made, tokenizer=tokenizer, overwrite=overwrite, events=events)
    return replace(report, dataset=Dataset(report.dataset.folder))


def estimate(
    inputs: str | Path | Sequence[str | Path], tokenizer: str | Path | object, **options: Any
) -> Estimate:
    """What `build` would take and give, from a sample; writes nothing."""
    return _estimate(recipe(inputs, tokenizer, "(not written)", **options), tokenizer)


def recipe(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: str | Path | object,
    out: str | Path,
    **options: Any,
) -> Recipe:
    """A checked recipe from flat options; a tokenizer object is named by its class.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    values: dict[str, Any] = {
        "inputs": [str(name) for name in names],
        "tokenizer": tokenizer_name(tokenizer),
        "out": str(out),
    }
    for name, value in options.items():
        section = section_of(name)
        place = values.setdefault(section, {}) if section else values
        place[name] = value
    return make_recipe(values)


def make_plan(
    dataset: Dataset | str | Path,
    *,
    name: str | None = None,
    folder: str | Path | None = None,
    overwrite: bool = False,
    **options: Any,
) -> PlanReport:
    """Plan sequences; options are those of `tokenmill pack`, with underscores.

    The plan goes to `plans/<name>` of the dataset, or to `folder`.

    Raises:
        TokenmillError: see `tokenmill.errors`.
    """
    if name is not None and folder is not None:
        raise UserError("a plan has a name in plans/ or a folder elsewhere: give one of them")
    opened = _opened(dataset)
    place = folder or None
    if name is not None:
        place = named_plan_folder(opened, name)
    return pack(opened, make_pack_options(options), place, overwrite=overwrite)


def compare_plans(dataset: Dataset | str | Path, **options: Any) -> list[Compared]:
    """What every strategy would make of the same options; writes nothing."""
    return list(compare(_opened(dataset), make_pack_options(options)))


def export_rows(
    dataset: Dataset | str | Path, plan: Plan | str | Path, out: str | Path, **options: Any
) -> ExportManifest:
    """Write the rows of a plan as files; options are those of `tokenmill export`.

    Raises:
        TokenmillError: see `tokenmill.errors`.
    """
    opened = _opened(dataset)
    found = plan if isinstance(plan, Plan) else open_plan(opened, plan)
    try:
        chosen = msgspec.convert(options, ExportOptions)
    except msgspec.ValidationError as error:
        raise UserError("an option of the export is wrong", why=str(error)) from error
    return _export(opened, found, out, chosen)


def mix_batches(sources: Sequence[MixtureSource], **options: Any) -> Batches:
    """Several plans mixed by shares of tokens, as batches of NumPy arrays.

    Options are those of `Dataset.batches` but `epochs`, and `when_one_ends`: "stop" or "go on".

    Raises:
        UserError: an option is wrong, or the sources do not fit together.
    """
    return _mix_batches(sources, **options)


def mix(sources: Sequence[MixtureSource], **options: Any) -> Loader:
    """`mix_batches`, as PyTorch tensors."""
    with _needs_torch():
        from tokenmill.load.loader import Loader

    return Loader(mix_batches(sources, **options))


def text_loader(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: str | Path,
    *,
    rank: int = 0,
    world_size: int | None = None,
    **options: Any,
) -> TextLoader:
    """Batches of sources kept as text, each document encoded anew in each epoch.

    Options are the fields of TextStreamOptions (`dropout` for BPE, `alpha` for Unigram) and of
    BatchOptions; `batch_size`, of each rank, may stand for `global_batch_size`.

    Raises:
        UserError: an option is wrong, or the tokenizer cannot be sampled.
    """
    if not isinstance(tokenizer, (str, Path)):
        raise UserError(
            "a text loader takes the name of a tokenizer, not an object",
            where=tokenizer_name(tokenizer),
            hint="save the tokenizer, and give the path of its tokenizer.json",
        )
    with _needs_torch():
        from tokenmill.load.text.loader import TextLoader

    ranks = known_world_size(world_size)
    if ("batch_size" in options) == ("global_batch_size" in options):
        raise UserError("a batch needs one size", hint="batch_size, or global_batch_size")
    if "batch_size" in options:
        options["global_batch_size"] = options.pop("batch_size") * ranks
    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    made_of, content = make_options((TextStreamOptions, BatchOptions), options)
    stream = TextStream(
        [str(name) for name in names], str(tokenizer), made_of, rank=rank, world_size=ranks
    )
    return TextLoader(stream, content)


def check_tokenizer(
    dataset: Dataset | str | Path, tokenizer: str | Path | object, *, encoding: str = ""
) -> str:
    """The fingerprint of `tokenizer`, if it gives texts the ids that are in the dataset.

    A tokenizer is what `build` takes, or a dataset, for the one that it carries. Of an object that
    names `eos_token_id` and `pad_token_id`, these must be the dataset's too.

    Raises:
        UserError: it is another tokenizer; the message says what differs.
    """
    return _check_tokenizer(_opened(dataset), tokenizer, encoding=encoding)


def open(folder: str | Path) -> Dataset:
    """A dataset on disk, with the manifest and all sizes checked."""
    return Dataset(folder)


@contextmanager
def _needs_torch() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        hint = "pip install 'tokenmill[torch]'; Dataset.batches gives NumPy arrays without it"
        raise UserError("tensors need PyTorch", why=str(error), hint=hint) from error


def _opened(dataset: Dataset | str | Path) -> Dataset:
    return dataset if isinstance(dataset, Dataset) else Dataset(dataset)


__all__ = [
    "BatchOptions",
    "Batches",
    "BuildEvents",
    "BuildReport",
    "Compared",
    "Curriculum",
    "Dataset",
    "DocumentView",
    "Estimate",
    "ExportManifest",
    "Figures",
    "MaskedLM",
    "MixtureSource",
    "OrderOptions",
    "Permutation",
    "Phase",
    "Pieces",
    "Plan",
    "PlanReport",
    "Recipe",
    "RowReader",
    "SegmentOrigin",
    "Segmentation",
    "StreamPacker",
    "Targets",
    "TextStream",
    "TextStreamOptions",
    "Verification",
    "build",
    "check_tokenizer",
    "compare_plans",
    "estimate",
    "export_rows",
    "load_recipe",
    "make_plan",
    "make_recipe",
    "masks",
    "micro_batches",
    "mix",
    "mix_batches",
    "open",
    "open_plan",
    "recipe",
    "shortened",
    "text_loader",
    "verify",
    "view_document",
]

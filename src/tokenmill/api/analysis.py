"""`tokenmill.analyze`: compare sequence lengths for a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tokenmill.api.building import Inputs, recipe
from tokenmill.api.records import names_of
from tokenmill.core.errors import UserError
from tokenmill.core.options import OptionError, make_options, options_of, unknown
from tokenmill.core.records import Advance
from tokenmill.core.suggestions import nearest
from tokenmill.read.places.local import expand
from tokenmill.reports.lengths.analysis import (
    SEQUENCE_LENGTHS,
    TOKENS_PER_BATCH,
    Analysis,
    Question,
    analyze_dataset,
    analyze_files,
)
from tokenmill.run.recipe.checks import SECTIONS
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.dataset import Dataset, is_dataset
from tokenmill.store.temporary import dataset_at

if TYPE_CHECKING:
    from tokenmill.api.options import BuildArguments
    from tokenmill.packing.costs import ModelShape

USUAL_MODEL = "llama-2-7b"
OWN_OPTIONS = ("sequence_lengths", "model", "tokens_per_batch", "activation_memory", "seed")


def analyze(
    corpus: Dataset | Inputs,
    tokenizer: str | Path | object | None = None,
    *,
    sequence_lengths: Sequence[int] = SEQUENCE_LENGTHS,
    model: str | ModelShape = USUAL_MODEL,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    activation_memory: int | str | None = None,
    seed: int = 0,
    advance: Advance = lambda stage, done, total: None,
    **options: Unpack[BuildArguments],
) -> Analysis:
    """Compare sequence lengths for a corpus and recommend one. Writes nothing.

    For a dataset, the analysis uses the exact lengths of all documents. Files are encoded with
    `tokenizer`. If they hold more than about 24 MB, a random sample is encoded instead. The
    options of `build` that decide how files are read and encoded are keyword arguments.

    Args:
        corpus: a dataset, its folder, or inputs as for `build`.
        tokenizer: as for `build`; only for inputs that are not a dataset.
        sequence_lengths: lengths to compare, in tokens.
        model: name of a published model (`"7b"`, `"llama-3-8b"`, `"gpt2"`) or a
            `tokenmill.packing.costs.ModelShape`. FLOPs and memory are computed for it.
        tokens_per_batch: tokens in a global batch.
        activation_memory: what one device has left for activations and logits, in bytes or as
            `"24GB"`. If given, the result says how many rows fit.
        seed: seed of the sample.
        advance: called with a stage, the amount done and the total, to show progress.
        options: options of `build` that decide how files are read and encoded.

    Raises:
        UserError: the corpus, the tokenizer or an option cannot be used.
        DataError: the files hold no document, and at least one of them is damaged.
        VerificationError: the index of the dataset is damaged.
    """
    from tokenmill.packing.costs import named_shape
    from tokenmill.reports.lengths.figures import Budget

    shape = named_shape(model) if isinstance(model, str) else model
    _refuse_unknown(options)
    given = {"tokens_per_batch": tokens_per_batch, "activation_memory": activation_memory}
    budget = make_options(Budget, given, "the analysis")
    question = Question(sequence_lengths, shape, budget)
    found = _dataset_of(corpus, is_alone=tokenizer is None)
    if found is not None:
        _refuse_reading(found, tokenizer, options)
        with nullcontext(found) if isinstance(found, Dataset) else dataset_at(found) as dataset:
            return analyze_dataset(dataset, question, advance)
    assert not isinstance(corpus, Dataset)
    _check_reading(names_of(corpus), tokenizer)
    made = recipe(corpus, tokenizer, "(not written)", **options)
    return analyze_files(made, tokenizer, question, seed, advance)


def _refuse_unknown(options: Mapping[str, Any]) -> None:
    """Refuse names that are options neither of an analysis nor of reading."""
    kinds = [kind for section, kind in SECTIONS.items() if section != "pack"]
    known = [*OWN_OPTIONS, *(name for kind in kinds for name in options_of(kind))]
    if problems := [unknown(name, nearest(name, known)) for name in options if name not in known]:
        raise OptionError("the analysis", problems)


def _refuse_reading(found: Dataset | str, tokenizer: object, options: Mapping[str, Any]) -> None:
    """Refuse a tokenizer and reading options for a dataset."""
    if tokenizer is not None or options:
        raise UserError(
            "a dataset takes no tokenizer and no reading options",
            where=str(found),
            why="it is already tokenized, and is analysed as it was built",
            hint="leave them out, or give the source files instead of the dataset",
        )


def _check_reading(names: list[str], tokenizer: object) -> None:
    """Refuse files without a tokenizer."""
    if tokenizer is None:
        for name in names:
            if "://" not in name:
                next(expand(name), None)  # reports a missing path before the missing tokenizer
        raise UserError(
            "no tokenizer given",
            why="the input is not the folder of a dataset, so its text must be encoded",
            hint="add --tokenizer TOKENIZER",
        )


def _dataset_of(corpus: Dataset | Inputs, *, is_alone: bool) -> Dataset | str | None:
    """The dataset or its name if `corpus` is exactly one dataset, else None.

    A name in a bucket counts as a dataset if no tokenizer was given.
    """
    if isinstance(corpus, Dataset):
        return corpus
    names = names_of(corpus)
    if len(names) != 1:
        return None
    if is_remote(names[0]):
        return names[0] if is_alone else None
    return names[0] if is_dataset(Path(names[0])) else None

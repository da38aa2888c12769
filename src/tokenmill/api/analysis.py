"""Choosing a sequence length from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.api.building import Inputs, recipe
from tokenmill.cloud.names import is_remote
from tokenmill.errors import UserError
from tokenmill.read.places.local import expand
from tokenmill.records import Advance
from tokenmill.report.lengths.analysis import (
    SEQUENCE_LENGTHS,
    TOKENS_PER_BATCH,
    Analysis,
    Question,
    analyze_dataset,
    analyze_files,
)
from tokenmill.run.recipe.checks import section_of
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import MANIFEST_NAME
from tokenmill.store.temporary import dataset_at

if TYPE_CHECKING:
    from tokenmill.api.options import BuildArguments
    from tokenmill.costs import ModelShape

USUAL_MODEL = "llama-2-7b"


def analyze(
    corpus: Dataset | Inputs,
    tokenizer: str | Path | object | None = None,
    *,
    sequence_lengths: Sequence[int] = SEQUENCE_LENGTHS,
    model: str | ModelShape = USUAL_MODEL,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    activation_memory: int | None = None,
    seed: int = 0,
    advance: Advance = lambda stage, done, total: None,
    **options: Unpack[BuildArguments],
) -> Analysis:
    """Compare sequence lengths for a corpus, and recommend one; writes nothing.

    A dataset, or its folder, says the lengths of all its documents. Files, as `build` takes them
    with its options, are encoded with `tokenizer`: all documents, or of more than about 24 MB a
    random sample, a function of files and `seed`. `model` is the name of a published shape or a
    shape (`tokenmill.costs`). `activation_memory` is what one device has left for activations and
    logits, in bytes.

    Raises:
        UserError: the corpus, the tokenizer or an option cannot be used.
        DataError: no document was found, and a file is damaged.
        VerificationError: the index of the dataset is damaged.
    """
    from tokenmill.costs import named_shape
    from tokenmill.report.lengths.figures import Budget

    shape = named_shape(model) if isinstance(model, str) else model
    budget = Budget(tokens_per_batch, activation_memory)
    question = Question(sequence_lengths, shape, budget)
    name = _dataset_name(corpus, is_alone=tokenizer is None)
    if name is not None:
        if tokenizer is not None or options:
            raise UserError(
                "a dataset is analysed as it was built",
                where=str(name),
                why="a tokenizer, or an option of reading, was given beside it",
                hint="leave them out, or name the files",
            )
        if isinstance(name, Dataset):
            return analyze_dataset(name, question, advance)
        with dataset_at(name) as dataset:
            return analyze_dataset(dataset, question, advance)
    if tokenizer is None:
        for each in _names(corpus):
            if "://" not in each:
                next(expand(each), None)  # a path that is not there is what is wrong
        raise UserError(
            "files are analysed with a tokenizer",
            why="no --tokenizer was given, and the input is not the folder of a dataset",
            hint="add --tokenizer TOKENIZER",
        )
    if misplaced := [name for name in options if section_of(name) == "pack"]:
        hint = "give sequence_lengths, or see tokenmill.make_plan"
        raise UserError(f"{', '.join(misplaced)}: is an option of a plan", hint=hint)
    assert not isinstance(corpus, Dataset)
    made = recipe(corpus, tokenizer, "(not written)", **options)
    return analyze_files(made, tokenizer, question, seed, advance)


def _names(corpus: Dataset | Inputs) -> list[str]:
    assert not isinstance(corpus, Dataset)
    return [str(corpus)] if isinstance(corpus, (str, Path)) else list(map(str, corpus))


def _dataset_name(corpus: Dataset | Inputs, *, is_alone: bool) -> Dataset | str | None:
    """The dataset, or its name, where that is all that is asked about.

    What is in a bucket is taken for a dataset if no tokenizer comes with it.
    """
    if isinstance(corpus, Dataset):
        return corpus
    names = _names(corpus)
    if len(names) != 1:
        return None
    if is_remote(names[0]):
        return names[0] if is_alone else None
    return names[0] if Path(names[0], MANIFEST_NAME).is_file() else None

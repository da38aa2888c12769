"""Choosing a sequence length from Python."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.api.building import Inputs, recipe
from tokenmill.errors import UserError
from tokenmill.paths import local_path
from tokenmill.records import Advance
from tokenmill.report.lengths.analysis import (
    SEQUENCE_LENGTHS,
    TOKENS_PER_BATCH,
    Analysis,
    Question,
    analyze_dataset,
    analyze_files,
)
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import MANIFEST_NAME

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
        DataError: there is no document, and a file is damaged.
        VerificationError: the index of the dataset is damaged.
    """
    from tokenmill.costs import named_shape
    from tokenmill.report.lengths.figures import Budget

    shape = named_shape(model) if isinstance(model, str) else model
    budget = Budget(tokens_per_batch, activation_memory)
    question = Question(sequence_lengths, shape, budget)
    dataset = _dataset(corpus)
    if dataset is not None:
        if tokenizer is not None or options:
            raise UserError(
                "a dataset is analysed as it was built",
                where=dataset.location,
                why="a tokenizer, or an option of reading, was given beside it",
                hint="leave them out, or name the files",
            )
        return analyze_dataset(dataset, question, advance)
    if tokenizer is None:
        raise UserError(
            "files are analysed with a tokenizer",
            why="no --tokenizer was given, and the input is not the folder of a dataset",
            hint="add --tokenizer TOKENIZER",
        )
    assert not isinstance(corpus, Dataset)
    made = recipe(corpus, tokenizer, "(not written)", **options)
    return analyze_files(made, tokenizer, question, seed, advance)


def _dataset(corpus: Dataset | Inputs) -> Dataset | None:
    """The dataset, where it or its folder is all that is asked about."""
    if isinstance(corpus, Dataset):
        return corpus
    names = [corpus] if isinstance(corpus, (str, Path)) else list(corpus)
    if len(names) != 1:
        return None
    folder = local_path(names[0], "the dataset")
    return Dataset(folder) if (folder / MANIFEST_NAME).is_file() else None

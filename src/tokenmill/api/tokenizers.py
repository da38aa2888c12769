"""Tokenizers from Python: trained with flat options, or made of another one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.api.building import Inputs
from tokenmill.vocabulary.options import counting_values, make_train_options

if TYPE_CHECKING:
    from tokenmill.api.options import TrainArguments
    from tokenmill.vocabulary.changing import TokenizerChange
    from tokenmill.vocabulary.training import TrainReport


def train_tokenizer(
    inputs: Inputs,
    out: str | Path,
    *,
    counts: str | Path | None = None,
    overwrite: bool = False,
    **options: Unpack[TrainArguments],
) -> TrainReport:
    """Train a tokenizer on texts, or on a folder of counts, and check it.

    Options are those of `tokenmill tokenizer train`, with underscores. The counts of texts stay in
    the folder `counts`, if one is given.

    Raises:
        TokenmillError: see `tokenmill.errors`.
    """
    from tokenmill.vocabulary.training import train

    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    training, counting = counting_values(options)
    return train(
        [str(name) for name in names],
        out,
        make_train_options(training),
        counting=counting,
        counts_folder=counts,
        overwrite=overwrite,
    )


def extend_tokenizer(
    base: str | Path | object,
    on: str | Path,
    out: str | Path,
    *,
    add: int,
    min_frequency: int = 2,
    encoding: str = "",
) -> TokenizerChange:
    """Add up to `add` tokens to a BPE tokenizer, learnt on the word counts in the folder `on`.

    Old ids and merges stay as they are. `out` gets a tokenizer.json, and a plan for the rows of a
    model: see `tokenmill.hf.resize_embeddings`.

    Raises:
        UserError: `base` is no BPE, or the words were cut in another way than it cuts.
        OutputConflictError: something has the name `out` already.
    """
    from tokenmill.report.tokenizers.source import open_tokenizer
    from tokenmill.vocabulary.changing import extend_file

    file = open_tokenizer(base, encoding)
    return extend_file(file, on, out, add=add, min_frequency=min_frequency)


def trim_tokenizer(
    base: str | Path | object, on: str | Path, out: str | Path, *, to: int, encoding: str = ""
) -> TokenizerChange:
    """Remove tokens from a BPE tokenizer until `to` are left, those that words need least first.

    Every token that is kept can still be reached. `out` gets a tokenizer.json, the new id of each
    old one, and a plan for the rows of a model: see `tokenmill.hf.resize_embeddings`.

    Raises:
        UserError: `base` is no BPE, the words were cut in another way than it cuts, or more tokens
            than `to` have to stay.
        OutputConflictError: something has the name `out` already.
    """
    from tokenmill.report.tokenizers.source import open_tokenizer
    from tokenmill.vocabulary.changing import trim_file

    return trim_file(open_tokenizer(base, encoding), on, out, to=to)

"""Tokenizers from Python: trained with flat options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.api.building import Inputs
from tokenmill.vocabulary.options import make_train_options

if TYPE_CHECKING:
    from tokenmill.api.options import TrainArguments
    from tokenmill.vocabulary.training import TrainReport


def train_tokenizer(
    inputs: Inputs,
    out: str | Path,
    *,
    overwrite: bool = False,
    **options: Unpack[TrainArguments],
) -> TrainReport:
    """Train a tokenizer; options are those of `tokenmill tokenizer train`, with underscores.

    Raises:
        TokenmillError: see `tokenmill.errors`.
    """
    from tokenmill.vocabulary.training import train

    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    chosen = make_train_options(options)
    return train([str(name) for name in names], out, chosen, overwrite=overwrite)

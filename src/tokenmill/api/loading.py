"""Mixtures of plans, and text that is encoded while it is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from tokenmill.encode.tokenizer_file import tokenizer_name
from tokenmill.errors import UserError
from tokenmill.load import opening
from tokenmill.load.background import PREFETCH
from tokenmill.load.batches import Batches
from tokenmill.load.columns import BatchOptions
from tokenmill.load.text.options import TextStreamOptions
from tokenmill.load.text.stream import TextStream

if TYPE_CHECKING:
    from tokenmill.api.options import MixtureArguments, TextLoaderArguments
    from tokenmill.load.loader import Loader
    from tokenmill.load.steps.mixture import MixtureSource
    from tokenmill.load.text.loader import TextLoader


def mix_batches(
    sources: Sequence[MixtureSource],
    *,
    when_one_ends: Literal["stop", "go on"] = "stop",
    **options: Unpack[MixtureArguments],
) -> Batches:
    """Mix several plans by shares of tokens, as batches of NumPy arrays.

    Options are those of `Dataset.batches` but `epochs`: each source has its own.

    Raises:
        UserError: an option is invalid, or the sources do not fit together.
    """
    return opening.mix_batches(sources, when_one_ends=when_one_ends, **options)


def mix(
    sources: Sequence[MixtureSource],
    *,
    when_one_ends: Literal["stop", "go on"] = "stop",
    prefetch: int = PREFETCH,
    pin_memory: bool | None = None,
    **options: Unpack[MixtureArguments],
) -> Loader:
    """`mix_batches`, as PyTorch tensors; `prefetch` and `pin_memory` as in `Dataset.loader`."""
    batches = mix_batches(sources, when_one_ends=when_one_ends, **options)
    return as_tensors(batches, prefetch, pin_memory)


def text_loader(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: str | Path,
    *,
    sequence_length: int,
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    rank: int = 0,
    world_size: int | None = None,
    **options: Unpack[TextLoaderArguments],
) -> TextLoader:
    """Batches of sources kept as text, each document encoded anew in each epoch.

    Give `batch_size`, rows of each rank, or `global_batch_size`, rows of all ranks. Other options
    are the fields of TextStreamOptions (`dropout` for BPE, `alpha` for Unigram) and BatchOptions.

    Raises:
        UserError: an option is invalid, or the tokenizer cannot be sampled.
    """
    if not isinstance(tokenizer, (str, Path)):
        raise UserError(
            "a text loader takes the name of a tokenizer, not an object",
            where=tokenizer_name(tokenizer),
            hint="save the tokenizer, and give the path of its tokenizer.json",
        )
    with _needs_torch():
        from tokenmill.load.text.loader import TextLoader

    ranks = opening.known_world_size(world_size)
    if (batch_size is None) == (global_batch_size is None):
        raise UserError("give exactly one batch size", hint="give batch_size or global_batch_size")
    rows = global_batch_size if batch_size is None else batch_size * ranks
    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    made_of, content = opening.make_options(
        (TextStreamOptions, BatchOptions),
        {"sequence_length": sequence_length, "global_batch_size": rows, **options},
    )
    stream = TextStream(
        [str(name) for name in names], str(tokenizer), made_of, rank=rank, world_size=ranks
    )
    return TextLoader(stream, content)


def as_tensors(batches: Batches, prefetch: int, pin_memory: bool | None) -> Loader:
    """A loader of the batches.

    Raises:
        UserError: PyTorch is not installed, or an option is wrong.
    """
    with _needs_torch():
        from tokenmill.load.loader import Loader

    return Loader(batches, prefetch, pin_memory)


@contextmanager
def _needs_torch() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        hint = "pip install 'tokenmill[torch]'; Dataset.batches gives NumPy arrays without it"
        raise UserError("tensors need PyTorch", why=str(error), hint=hint) from error

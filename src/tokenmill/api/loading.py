"""`tokenmill.mix` and `tokenmill.text_loader`: loaders for mixtures and for raw text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from tokenmill.core.errors import UserError
from tokenmill.encode.tokenizer_file import tokenizer_name
from tokenmill.load import opening
from tokenmill.load.background import PREFETCH
from tokenmill.load.batches import Batches
from tokenmill.load.columns import BatchOptions
from tokenmill.load.metrics import keep_metrics
from tokenmill.load.steps.batch_size import known_ranks
from tokenmill.load.text.stream import TextStream, TextStreamOptions

if TYPE_CHECKING:
    from tokenmill.api.options import MixtureArguments, TextLoaderArguments
    from tokenmill.load.loader import Loader
    from tokenmill.load.steps.mixture import MixtureSource
    from tokenmill.load.text.loader import Group, TextLoader


def mix_batches(
    sources: Sequence[MixtureSource],
    *,
    when_one_ends: Literal["stop", "go on"] = "stop",
    **options: Unpack[MixtureArguments],
) -> Batches:
    """Mix several plans by shares of tokens, as batches of NumPy arrays.

    Options are those of `Dataset.batches`, without `epochs`: each source has its own.

    Args:
        sources: the plans and their shares.
        when_one_ends: "stop" ends the mixture with the first source that ends; "go on" continues
            with the others.
        options: as for `Dataset.batches`, without `epochs`.

    Raises:
        UserError: an option is invalid, or the sources have different tokenizers or row lengths.
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
    """Mix several plans by shares of tokens, as batches of PyTorch tensors.

    Options are those of `mix_batches`.

    Args:
        sources: as for `mix_batches`.
        when_one_ends: as for `mix_batches`.
        prefetch: as for `Dataset.loader`.
        pin_memory: as for `Dataset.loader`.
        options: as for `mix_batches`.

    Raises:
        UserError: as for `mix_batches`, or PyTorch is not installed.
    """
    batches = mix_batches(sources, when_one_ends=when_one_ends, **options)
    return opening.as_tensors(batches, prefetch, pin_memory)


def text_loader(
    inputs: str | Path | Sequence[str | Path],
    tokenizer: str | Path,
    *,
    sequence_length: int,
    batch_size: int | None = None,
    global_batch_size: int | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    metrics: str | Path | None = None,
    group: Group | None = None,
    **options: Unpack[TextLoaderArguments],
) -> TextLoader:
    """Load text and encode it during training, with a new sampled encoding in each epoch.

    Use it for subword regularization: set `dropout` for BPE or `alpha` for Unigram. For everything
    else, build a dataset first: it is faster. Other options are the fields of `TextStreamOptions`
    and `BatchOptions`.

    Args:
        inputs: files, folders, globs or URLs, as for `build`.
        tokenizer: path or Hub name of a tokenizer.
        sequence_length: tokens in a row.
        batch_size: rows in a batch of one rank. Give this or `global_batch_size`.
        global_batch_size: rows in a batch over all ranks.
        rank: rank of this process. You can omit both if a single process trains.
        world_size: number of ranks.
        metrics: file of metrics for Prometheus; each rank has its own.
        group: process group of these ranks, by which they share the encoding. All must then take
            their batches and load states together. None: each rank encodes everything.
        options: fields of `TextStreamOptions` and `BatchOptions`.

    Raises:
        UserError: an option is invalid, or the tokenizer does not support sampling.
    """
    if not isinstance(tokenizer, (str, Path)):
        raise UserError(
            "text_loader needs the name of a tokenizer, got an object",
            where=tokenizer_name(tokenizer),
            hint="save the tokenizer and pass the path of its tokenizer.json",
        )
    with opening.needs_torch():
        from tokenmill.load.text.loader import TextLoader, exchange_in

    rank, ranks = known_ranks(rank, world_size)
    if (batch_size is None) == (global_batch_size is None):
        raise UserError("give exactly one batch size", hint="give batch_size or global_batch_size")
    rows = global_batch_size if batch_size is None else batch_size * ranks
    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    made_of, content = opening.make_options(
        (TextStreamOptions, BatchOptions),
        {"sequence_length": sequence_length, "global_batch_size": rows, **options},
    )
    stream = TextStream(
        [str(name) for name in names],
        str(tokenizer),
        made_of,
        rank=rank,
        world_size=ranks,
        exchange=None if group is None else exchange_in(group, rank, ranks),
    )
    loader = TextLoader(stream, content)
    keep_metrics(loader.meter, loader.stats, metrics, rank, ranks)
    return loader

"""Recommend a vocabulary size from scaling laws and corpus lengths, with the costs of each size.

The FLOPs for one epoch are 6 x weights x tokens (`costs.py`), plus attention over full rows if the
shape of the model is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tokenmill.core.errors import UserError
from tokenmill.packing.costs import (
    FLOPS_PER_WEIGHT,
    ModelShape,
    embedding_parameters,
    named_shape,
)
from tokenmill.vocabulary.advice.lengths import LengthCurve
from tokenmill.vocabulary.advice.scaling import (
    FITTED_PARAMETERS,
    LARGEST_SIZE,
    generic_size_of_least_flops,
    generic_tokens_per_character,
    loss,
    optimal_compute,
    optimal_parameters,
    size_by_derivative,
    size_by_isoflops,
    size_by_loss,
    usual_hidden_size,
)


@dataclass(frozen=True, slots=True)
class TargetModel:
    """A model without its vocabulary, and its training compute."""

    parameters: int
    """The number of parameters without the embedding and output matrices."""
    hidden_size: int
    tied: bool
    flops: float
    """FLOPs of the whole training."""
    shape: ModelShape | None
    """None if only the number of parameters is known; costs then exclude attention."""
    assumptions: tuple[str, ...]
    """Assumptions about values that were not given."""


def target_model(
    *,
    model: str | ModelShape | None = None,
    parameters: float | None = None,
    compute: float | None = None,
    hidden_size: int | None = None,
    tied: bool | None = None,
) -> TargetModel:
    """Describe the model, with usual values for everything not given.

    Raises:
        UserError: values are missing, contradict each other, or are out of range.
    """
    shape = named_shape(model) if isinstance(model, str) else model
    _check(shape, parameters, compute, hidden_size)
    assumed = []
    if shape is not None:
        parameters, hidden_size = shape.non_vocabulary_parameters, shape.hidden_size
        tied = shape.tied if tied is None else tied
    elif parameters is None and compute is not None:
        parameters = max(optimal_parameters(compute), 1.0)
        assumed.append(f"{parameters:,.0f} parameters, the best model for this compute")
    if parameters is None:
        raise UserError("the parameters, the compute or the shape of the model must be given")
    if hidden_size is None:
        hidden_size = usual_hidden_size(parameters)
        assumed.append(f"hidden size {hidden_size:,}, usual for this number of parameters")
    if compute is None:
        compute = optimal_compute(parameters)
        assumed.append(f"{compute:.3g} FLOPs, the compute for which this size is the best")
    if tied is None:
        tied = False
        assumed.append("input and output matrices are not tied")
    return TargetModel(round(parameters), hidden_size, tied, compute, shape, tuple(assumed))


def _check(
    shape: ModelShape | None,
    parameters: float | None,
    compute: float | None,
    hidden_size: int | None,
) -> None:
    if shape is None and parameters is None and compute is None:
        raise UserError(
            "cannot recommend a vocabulary size without a model",
            why="parameters, compute and shape are all missing",
            hint="give one, for example parameters 1.3B, compute 1e21, or model llama-3-8b",
        )
    if shape is not None and (parameters is not None or hidden_size is not None):
        raise UserError(
            "cannot combine a model shape with parameters or hidden size",
            why="the shape already determines them",
            hint="give either the shape or the others",
        )
    given = {"parameters": parameters, "compute": compute, "hidden size": hidden_size}
    for name, value in given.items():
        if value is not None and not 1 <= value < float("inf"):
            raise UserError(f"{name} must be a number of at least 1, got {value}")


USUAL_SIZES = (8192, 16384, 32768, 49152, 65536, 98304, 131072, 200064, 262144)
MULTIPLE = 128
"""Matrix units work best with multiples of this size (NVIDIA's guide to matrix multiplication;
Megatron-LM pads vocabularies to it)."""
CLOSE_LOSS = 0.005
"""Sizes are about as good if their fitted loss differs by less, in nats per token. This is our
choice, to show how flat the optimum is."""


@dataclass(frozen=True, slots=True)
class Approach:
    """The best size according to one approach."""

    name: str
    size: int
    explanation: str
    followed: bool
    """Whether the recommendation uses this approach."""


@dataclass(frozen=True, slots=True)
class SizeCosts:
    """The costs of one vocabulary size."""

    size: int
    tokens_per_character: float
    """Tokens per character, measured on the corpus or from the generic curve."""
    bytes_per_token: float | None
    tokens: int | None
    """The number of tokens in the corpus; None beyond its curve."""
    embedding_parameters: int
    embedding_share: float
    """The share of embeddings in all parameters."""
    flops: float | None
    """Training FLOPs for one epoch of the corpus, including attention if it is known."""
    relative_flops: float
    """FLOPs for the same text, relative to the lowest of all sizes shown."""
    added_loss: float
    """Additional loss compared to the best size at equal compute, in nats (approach 3)."""


@dataclass(frozen=True, slots=True)
class VocabularyAdvice:
    """The recommended vocabulary size and the reasons for it."""

    model: TargetModel
    approaches: list[Approach]
    sizes: list[SizeCosts]
    recommended: int
    lowest: int
    highest: int
    """The lowest and highest size among the approaches that were followed."""
    about_as_good: tuple[int, int]
    """Range of sizes with a fitted loss within `CLOSE_LOSS` of the best."""
    reasons: list[str]
    corpus: LengthCurve | None


def advise(
    model: TargetModel,
    corpus: LengthCurve | None = None,
    *,
    sizes: Sequence[int] = (),
    sequence_length: int = 4096,
    multiple: int = MULTIPLE,
) -> VocabularyAdvice:
    """Recommend a size: the median of three approaches, rounded up to a multiple.

    With a corpus, the second approach is scaled by how much the corpus moves the size with the
    fewest FLOPs.

    Raises:
        UserError: a size, the sequence length or the multiple is below 1.
    """
    if multiple < 1 or sequence_length < 1 or any(size < 1 for size in sizes):
        raise UserError("sizes, sequence length and multiple must be at least 1")
    approaches = list(_approaches(model, corpus))
    found = sorted(approach.size for approach in approaches if approach.followed)
    recommended = max(math.ceil(found[1] / multiple), 1) * multiple
    shown = sorted({*(sizes or _usual(found)), recommended})
    return VocabularyAdvice(
        model=model,
        approaches=approaches,
        sizes=_costs(model, corpus, shown, sequence_length),
        recommended=recommended,
        lowest=found[0],
        highest=found[-1],
        about_as_good=_close_sizes(model),
        reasons=list(_reasons(model, corpus, found, recommended, multiple)),
        corpus=corpus,
    )


def largest_size_of_interest(model: TargetModel, sizes: Sequence[int] = ()) -> int:
    """Return the largest size for which to measure the lengths of a corpus."""
    generic = generic_size_of_least_flops(model.parameters, model.hidden_size)
    found = [approach.size for approach in _approaches(model, None)]
    return int(max(4 * generic, 4 * max(found), *sizes, 0))


def _approaches(model: TargetModel, corpus: LengthCurve | None) -> Iterator[Approach]:
    """Yield the best size of each approach; the second one also for the corpus, if given."""
    arguments = model.parameters, model.hidden_size
    moved = _moved(model, corpus) if corpus else None
    why = "best of many models at equal compute"
    yield Approach("IsoFLOPs", size_by_isoflops(*arguments), why, followed=True)
    derivative = size_by_derivative(*arguments)
    why = "scaled like the size with the fewest FLOPs, using lengths of English text"
    yield Approach("derivative", derivative, why, followed=moved is None)
    if moved is not None:
        why = f"the same with the lengths of this corpus: {moved:.2f} times the size"
        yield Approach("derivative, measured", round(derivative * moved), why, followed=True)
    why = f"minimum of a fitted loss at {model.flops:.3g} FLOPs"
    yield Approach("loss", size_by_loss(*arguments, model.flops), why, followed=True)


def _moved(model: TargetModel, corpus: LengthCurve) -> float | None:
    """Return the factor by which the corpus moves the size with the fewest FLOPs."""
    generic = generic_size_of_least_flops(model.parameters, model.hidden_size)
    measured = corpus.size_of_least_flops(model.parameters, model.hidden_size)
    if measured is None or generic >= LARGEST_SIZE * 0.999:
        return None
    return measured / generic


def _usual(found: Sequence[int]) -> Iterable[int]:
    """Return the usual sizes near those of the approaches."""
    inside = [size for size in USUAL_SIZES if found[0] / 4 <= size <= found[-1] * 4]
    return inside or [USUAL_SIZES[0] if found[-1] < USUAL_SIZES[0] else USUAL_SIZES[-1]]


def _costs(
    model: TargetModel, corpus: LengthCurve | None, sizes: Sequence[int], sequence_length: int
) -> list[SizeCosts]:
    best = size_by_loss(model.parameters, model.hidden_size, model.flops)
    least_loss = loss(model.parameters, model.hidden_size, model.flops, best)
    relative = {
        size: _tokens_per_character(corpus, size) * _flops_per_token(model, size, sequence_length)
        for size in sizes
    }
    least = min(relative.values())
    rows = []
    for size in sizes:
        tokens = corpus.at(size) if corpus else None
        embedding = embedding_parameters(size, model.hidden_size, tied=model.tied)
        rows.append(
            SizeCosts(
                size=size,
                tokens_per_character=_tokens_per_character(corpus, size),
                bytes_per_token=corpus.num_bytes / tokens if corpus and tokens else None,
                tokens=tokens,
                embedding_parameters=embedding,
                embedding_share=embedding / (model.parameters + embedding),
                flops=None
                if tokens is None
                else tokens * _flops_per_token(model, size, sequence_length),
                relative_flops=relative[size] / least,
                added_loss=loss(model.parameters, model.hidden_size, model.flops, size)
                - least_loss,
            )
        )
    return rows


def _tokens_per_character(corpus: LengthCurve | None, size: int) -> float:
    tokens = corpus.at(size) if corpus else None
    if corpus is None or tokens is None:
        return generic_tokens_per_character(size)
    return tokens / max(corpus.num_characters, 1)


def _flops_per_token(model: TargetModel, size: int, sequence_length: int) -> float:
    """Return the training FLOPs per token, in full rows."""
    if model.shape is None:
        return float(FLOPS_PER_WEIGHT * (model.parameters + size * model.hidden_size))
    return model.shape.training_flops(size, sequence_length, sequence_length**2) / sequence_length


def _close_sizes(model: TargetModel) -> tuple[int, int]:
    """Return the range of sizes with about the same fitted loss as the best one."""
    arguments = model.parameters, model.hidden_size, model.flops
    best = size_by_loss(*arguments)
    most = loss(*arguments, best) + CLOSE_LOSS
    low = high = float(best)
    while low > 2 and loss(*arguments, low / 1.01) <= most:
        low /= 1.01
    while high < 1e9 and loss(*arguments, high * 1.01) <= most:
        high *= 1.01
    return round(low), round(high)


def _reasons(
    model: TargetModel,
    corpus: LengthCurve | None,
    found: Sequence[int],
    recommended: int,
    multiple: int,
) -> Iterator[str]:
    yield (
        f"the three approaches of Tao et al. 2024 give {found[0]:,} to {found[-1]:,}; this is "
        f"their median, rounded up to a multiple of {multiple}"
    )
    low, high = _close_sizes(model)
    yield (
        f"the optimum is flat: from {low:,} to {high:,}, the fitted loss is at most {CLOSE_LOSS} "
        "nats above the best"
    )
    least, most = FITTED_PARAMETERS
    if not least <= model.parameters <= most:
        yield (
            f"the laws were fitted to models of {least / 1e6:.0f} M to {most / 1e9:.2f} B "
            "parameters and are extrapolated to this model"
        )
    if corpus is None:
        yield "lengths are for English web text; other text moves the optimum, so measure yours"
    else:
        yield from _corpus_reasons(model, corpus, recommended)


def _corpus_reasons(model: TargetModel, corpus: LengthCurve, recommended: int) -> Iterator[str]:
    measured = corpus.size_of_least_flops(model.parameters, model.hidden_size)
    generic = generic_size_of_least_flops(model.parameters, model.hidden_size)
    if measured is None:
        yield (
            f"for this corpus, FLOPs still fall at {corpus.largest_size:,}, the end of its curve, "
            "so it does not change the second approach"
        )
    else:
        yield (
            f"this corpus takes the fewest FLOPs at {measured:,}, English text at {generic:,.0f}; "
            "the second approach is scaled by that ratio"
        )
    if corpus.left_out_bytes:
        yield (
            f"{corpus.left_out_bytes:,} bytes of rare words were left out when the corpus was "
            "counted, so it is longer than shown, and its curve is less steep"
        )
    tokens = corpus.at(recommended)
    if tokens:
        weights = model.parameters + recommended * model.hidden_size
        wanted = model.flops / (FLOPS_PER_WEIGHT * weights)
        yield (
            f"the corpus has {tokens:,} tokens at that size; {model.flops:.3g} FLOPs are enough "
            f"for {wanted:,.0f} tokens, {wanted / tokens:,.1f} times the corpus"
        )

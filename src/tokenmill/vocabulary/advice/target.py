"""The model that a vocabulary is for, described by its size."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.core.errors import UserError
from tokenmill.pack.costs import ModelShape, named_shape
from tokenmill.vocabulary.advice.scaling import (
    optimal_compute,
    optimal_parameters,
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

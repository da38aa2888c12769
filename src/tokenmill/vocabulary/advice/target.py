"""The model that a vocabulary is for, described by its size."""

from __future__ import annotations

from dataclasses import dataclass

from tokenmill.costs import ModelShape, named_shape
from tokenmill.errors import UserError
from tokenmill.vocabulary.advice.scaling import (
    optimal_compute,
    optimal_parameters,
    usual_hidden_size,
)


@dataclass(frozen=True, slots=True)
class TargetModel:
    """A model without its vocabulary, and its training compute."""

    parameters: int
    """Parameters without embedding and output matrix."""
    hidden_size: int
    tied: bool
    flops: float
    """FLOPs of the whole training."""
    shape: ModelShape | None
    """None if only the number of parameters is known. Costs then leave out attention."""
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
        UserError: too little or too much was given, or a value makes no sense.
    """
    shape = named_shape(model) if isinstance(model, str) else model
    _check(shape, parameters, compute, hidden_size)
    assumed = []
    if shape is not None:
        parameters, hidden_size = shape.non_vocabulary_parameters, shape.hidden_size
        tied = shape.tied if tied is None else tied
    elif parameters is None and compute is not None:
        parameters = max(optimal_parameters(compute), 1.0)
        assumed.append(f"{parameters:,.0f} parameters, the best model for that compute")
    if parameters is None:
        raise UserError("give the parameters, the compute or the shape of the model")
    if hidden_size is None:
        hidden_size = usual_hidden_size(parameters)
        assumed.append(f"hidden size {hidden_size:,}, usual for so many parameters")
    if compute is None:
        compute = optimal_compute(parameters)
        assumed.append(f"{compute:.3g} FLOPs, the compute that a model of that size is best for")
    if tied is None:
        tied = False
        assumed.append("input and output matrix are two")
    return TargetModel(round(parameters), hidden_size, tied, compute, shape, tuple(assumed))


def _check(
    shape: ModelShape | None,
    parameters: float | None,
    compute: float | None,
    hidden_size: int | None,
) -> None:
    if shape is None and parameters is None and compute is None:
        raise UserError(
            "advice on a vocabulary needs to know the model",
            why="parameters, compute and shape are all missing",
            hint="for example parameters 1.3B, compute 1e21, or model llama-3-8b",
        )
    if shape is not None and (parameters is not None or hidden_size is not None):
        raise UserError(
            "a model shape says its parameters and its hidden size",
            why="it already determines them",
            hint="leave out the shape, or the others",
        )
    given = {"parameters": parameters, "compute": compute, "hidden size": hidden_size}
    for name, value in given.items():
        if value is not None and not 1 <= value < float("inf"):
            raise UserError(f"{name} must be a number of at least 1, got {value}")

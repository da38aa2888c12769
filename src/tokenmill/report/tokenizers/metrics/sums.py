"""Ratios of a tokenizer's sums, each with the interval that the bootstrap gives it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import Int64Array

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two sums over all documents."""

    value: float | None
    """None if the denominator is 0."""
    low: float | None = None
    """Bounds of the interval; None if there is none."""
    high: float | None = None


def ratio(numerators: Int64Array, denominators: Int64Array) -> Ratio:
    """The quotient of the first elements, and the interval between percentiles of the others.

    Shape (1 + replicates,) each: sums over all documents, then over each sample of them
    (percentile bootstrap).
    """
    if not denominators[0]:
        return Ratio(None)
    drawn = denominators > 0
    return interval((numerators[drawn] / denominators[drawn]).tolist())


def interval(values: Sequence[float]) -> Ratio:
    """The first of some values, and the interval between percentiles of the others."""
    if len(values) == 1:
        return Ratio(values[0])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(values[1:], [tail, 1 - tail]).tolist()
    return Ratio(values[0], low, high)


def bits_per_byte_factor(tokens: int, num_bytes: int) -> float | None:
    """Factor from a loss in nats per token to bits per byte of text."""
    return tokens / (math.log(2) * num_bytes) if num_bytes else None

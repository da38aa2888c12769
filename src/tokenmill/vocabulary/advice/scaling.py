"""Optimal vocabulary sizes by the three approaches of Tao et al. 2024.

"Scaling Laws with Vocabulary: Larger Models Deserve Larger Vocabularies", arXiv 2407.13623;
coefficients from github.com/sail-sg/scaling-with-vocab. Vocabulary parameters are those of one
matrix, V d; `parameters` are all others. The laws were fitted to models with 33 M to 1.13 B such
parameters, on English web text.
"""

from __future__ import annotations

import math
from collections.abc import Callable

FITTED_PARAMETERS = (33_000_000, 1_130_000_000)
LARGEST_SIZE = 200_000
"""The generic length curve is flat beyond this size."""

_COMPUTE_CONSTANT = math.exp(-2.4846510161625193)
_ISOFLOPS = math.exp(-1.589031299255507), 0.4163622634135234
_ANCHOR = 3_145_728, 33_000_000
_DERIVATIVE_EXPONENT = 0.8353974035228025
_A1, _A2, _B, _E = 1.8313851559554126, 0.19584238398665638, 2.1241123120064955, 5.5327846803337435
_ALPHA_1 = _BETA = 0.44660634152009615
_ALPHA_2 = 0.6707374679896795
_LENGTHS = 0.00639222, -0.15811069, 1.20470122
_HIDDEN_SIZES = (
    (50e6, 512), (200e6, 768), (500e6, 1024), (1e9, 1536), (2e9, 2048), (5e9, 3200), (10e9, 4096),
    (20e9, 5120), (50e9, 6048), (100e9, 8192), (200e9, 12288), (500e9, 16384), (1000e9, 20480),
)  # fmt: skip


def usual_hidden_size(parameters: float) -> int:
    """Return the paper's hidden size for models with this many non-vocabulary parameters."""
    return next((size for most, size in _HIDDEN_SIZES if parameters <= most), 24576)


def optimal_compute(parameters: float) -> float:
    """Return the training FLOPs for which a model of this size is the best."""
    return (parameters / _COMPUTE_CONSTANT) ** 2


def optimal_parameters(flops: float) -> float:
    """Return the non-vocabulary parameters of the best model for this compute."""
    return _COMPUTE_CONSTANT * math.sqrt(flops)


def generic_tokens_per_character(size: float) -> float:
    """Return the tokens per character of English text for a vocabulary size, as fitted there."""
    square, linear, constant = _LENGTHS
    log = math.log(min(size, LARGEST_SIZE))
    return square * log**2 + linear * log + constant


def size_by_isoflops(parameters: float, hidden_size: int) -> int:
    """Return the best size by approach 1: many models trained with equal compute."""
    constant, exponent = _ISOFLOPS
    return _size(constant * math.pow(optimal_compute(parameters), exponent), hidden_size)


def size_by_derivative(parameters: float, hidden_size: int) -> int:
    """Return the best size by approach 2: scaled from a small model by the minimum of FLOPs."""
    anchor, anchor_parameters = _ANCHOR
    scale = math.pow(parameters / anchor_parameters, _DERIVATIVE_EXPONENT)
    return _size(anchor * scale, hidden_size)


def size_by_loss(parameters: float, hidden_size: int, flops: float) -> int:
    """Return the best size by approach 3: the minimum of a fitted loss, for any compute."""

    def slope(vocabulary_parameters: float) -> float:
        ours = _ALPHA_2 * _A2 * math.pow(vocabulary_parameters, -(_ALPHA_2 + 1))
        weights = parameters / 1e6 + vocabulary_parameters
        tokens = flops / 1e15 / (6 * weights)
        return _BETA * _B / weights * math.pow(tokens, -_BETA) - ours

    return _size(1e6 * _root(slope, 1e-6, 1e9), hidden_size)


def loss(parameters: float, hidden_size: int, flops: float, size: float) -> float:
    """Return the fitted loss of approach 3, in nats per token, normalized by that of unigrams.

    Only differences between sizes, at equal parameters and compute, are meaningful.
    """
    vocabulary_parameters = size * hidden_size / 1e6
    tokens = flops / 1e15 / (6 * (parameters / 1e6 + vocabulary_parameters))
    of_model = _A1 * math.pow(parameters / 1e6, -_ALPHA_1)
    of_vocabulary = _A2 * math.pow(vocabulary_parameters, -_ALPHA_2)
    return of_model + of_vocabulary + _B * math.pow(tokens, -_BETA) - _E


def generic_size_of_least_flops(parameters: float, hidden_size: int) -> float:
    """Return the size at which English text takes the fewest FLOPs, at most `LARGEST_SIZE`."""
    square, linear, _ = _LENGTHS

    def slope(size: float) -> float:
        shorter = (2 * square * math.log(size) + linear) / size
        weights = parameters + hidden_size * size
        return hidden_size * generic_tokens_per_character(size) + weights * shorter

    return _root(slope, 100, LARGEST_SIZE)


def _size(vocabulary_parameters: float, hidden_size: int) -> int:
    """Return the vocabulary size with this many parameters, at least 1."""
    return max(round(vocabulary_parameters / hidden_size), 1)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of an increasing function, or the nearest end of the interval."""
    for _ in range(200):
        middle = math.sqrt(low * high)
        if function(middle) < 0:
            low = middle
        else:
            high = middle
    return high

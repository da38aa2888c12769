"""Inequality of a tokenizer between groups of documents, such as languages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def gini(costs: Sequence[float]) -> float:
    """Gini coefficient: 0 if all groups cost the same.

    The sum of |a - b| over all ordered pairs by 2 n^2 times the mean, as TokEval has it
    (https://github.com/cimeister/tokenizer-analysis-suite); `costs` are tokens per line there.
    """
    values = np.sort(np.asarray(costs, np.float64))
    total = float(values.sum())
    if len(values) < 2 or total == 0:
        return 0.0
    # Each pair once: in rising order, value i is the greater one i times, the lesser n - 1 - i.
    greater = 2 * np.arange(len(values)) - (len(values) - 1)
    return float(np.sum(greater * values)) / (len(values) * total)


def worst(costs: Mapping[str, float]) -> str | None:
    """The group that costs most; of several, the first by name."""
    return min(costs, key=lambda name: (-costs[name], name), default=None)

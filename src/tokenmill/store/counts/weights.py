"""Weights of the groups of a corpus, as whole numbers so that weighted counts stay exact.

A weight of 3 is the same as repeating the text of the group three times.

Sampling by `alpha`: languages are sampled in proportion to p^alpha instead of their share p, which
favors small languages (mBERT 0.7, arXiv 1810.04805's repository; XLM-R 0.3, arXiv 1911.02116).
Byte premium: the bytes that a language needs relative to English for the same content (Arnett et
al., arXiv 2403.00686). With premiums, shares refer to content instead of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

LARGEST_GROUP = 100
"""The smallest weight. All weights are scaled to it and then rounded."""


def sampling_weights(
    group_bytes: Mapping[str, int], alpha: float, premiums: Mapping[str, float] | None = None
) -> dict[str, int]:
    """Return a weight for each group; groups without bytes get 1.

    `premiums` are the bytes for the same content relative to one language; missing ones are 1.
    With `alpha` 1, all weights are equal; with 0, all groups count the same.
    """
    premiums = premiums or {}
    content = {name: size / premiums.get(name, 1.0) for name, size in group_bytes.items() if size}
    if not content or alpha == 1:
        return dict.fromkeys(group_bytes, 1)
    # p^alpha / p: how often the text of a group is repeated.
    total = sum(content.values())
    repeats = {name: (size / total) ** (alpha - 1) for name, size in content.items()}
    least = min(repeats.values())
    weights = {name: round(LARGEST_GROUP * repeat / least) for name, repeat in repeats.items()}
    return {name: weights.get(name, 1) for name in group_bytes}

"""How much each group of a corpus counts: whole numbers, so that weighted counts stay exact.

A weight of 3 is the same as that group's text three times over.

Sampling by `alpha`: languages are seen in proportion to p^alpha instead of their share p, which
gives small ones more (mBERT 0.7, arXiv 1810.04805's repository; XLM-R 0.3, arXiv 1911.02116).
Byte premium: what a language takes in bytes beside English for the same content (Arnett et al.,
arXiv 2403.00686); shares are then of content, not of bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

LARGEST_GROUP = 100
"""The weight of the group that is seen least beyond its share: what weights are rounded to."""


def sampling_weights(
    group_bytes: Mapping[str, int], alpha: float, premiums: Mapping[str, float] | None = None
) -> dict[str, int]:
    """A weight for each group; groups without bytes get 1.

    `premiums` are bytes for the same content, beside any one language; missing ones are 1.
    With `alpha` 1 all weights are equal, with 0 all groups count the same.
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

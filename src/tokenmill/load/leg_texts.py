"""Legs of a run in words."""

from __future__ import annotations

from tokenmill.core.values import counted
from tokenmill.load.legs import name_of
from tokenmill.load.steps.state import Leg, LoaderState


def describe_leg(state: LoaderState, leg: Leg) -> str:
    """The sources, shares and batch size of a leg in words."""
    sources = [state.sources[number] for number in leg.sources]
    shares = [each for each in leg.order.shares if isinstance(each, float)]
    if shares and len(shares) == len(sources):
        total = sum(shares) or 1
        parts = [
            f"{name_of(each)} {share / total:.1%} (plan {each.plan_name})"
            for each, share in zip(sources, shares, strict=True)
        ]
    else:
        parts = [f"{name_of(each)} (plan {each.plan_name})" for each in sources]
    unit = "rows" if leg.global_batch.rows else "tokens"
    batch = ", then ".join(
        counted(each, unit.removesuffix("s")) for _, each in leg.global_batch.points
    )
    return f"{', '.join(parts)}; {batch} in a global batch"

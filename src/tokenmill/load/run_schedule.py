"""The schedule of an amended run: that of each leg, opened when one of its steps is needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.load.legs import LegSource
from tokenmill.load.sources import Sources
from tokenmill.load.steps.batch_size import check_ramp
from tokenmill.load.steps.chain import Chain
from tokenmill.load.steps.mixture import (
    MixtureSchedule,
)
from tokenmill.load.steps.order import Order, Shuffle, steps_of
from tokenmill.load.steps.plan_schedule import PlanSchedule
from tokenmill.load.steps.schedule import (
    Schedule,
    Start,
    seed_of_source,
    token_counts,
)
from tokenmill.load.steps.state import (
    Given,
    Leg,
    LoaderState,
)
from tokenmill.store.plan import Plan

ROWS_AT_ONCE = 1 << 20


def chain_of(state: LoaderState, sources: Sources) -> Chain:
    """Return the schedule of an amended run."""
    names = [each.name or str(number) for number, each in enumerate(state.sources)]
    was_mixed = any(leg.order.shares for leg in state.legs)
    open_leg = partial(_schedule_of, sources, state.seed)
    chain = Chain(state.legs, open_leg, names if was_mixed else ())
    if state.legs[-1].order.shares:
        chain.present.source_names = [names[number] for number in state.legs[-1].sources]
    return chain


def _schedule_of(sources: Sources, seed: int, leg: Leg, given: Sequence[Given]) -> Schedule:
    """Return the steps of a leg."""
    order, numbers = leg.order, leg.sources
    readers = [sources[number] for number in numbers]
    size = leg.global_batch
    check_ramp(size.points)
    own = [given[number] if number < len(given) else Given() for number in numbers]
    start = Start(
        step=leg.first_step,
        numbers=numbers,
        rows=[each.rows for each in own],
        tokens=[0] * len(own),
        lags=[each.lag for each in own],
    )
    shuffle = order.shuffle or "global"
    if not order.shares:
        plan, epochs = readers[0].plan, leg.epochs[0]
        return PlanSchedule(plan, size, seed=seed, shuffle=shuffle, epochs=epochs, start=start)
    start.tokens[:] = [
        _tokens_of(each, reader.plan, _order_of(reader.plan, seed, number, shuffle))
        for each, reader, number in zip(own, readers, numbers, strict=True)
    ]
    lists = numbers, order.points, leg.epochs, order.tokens or [None] * len(numbers)
    mixed = [
        LegSource(sources.states[number], share, most, tokens).opened(reader.dataset, reader.plan)
        for reader, number, share, most, tokens in zip(readers, *lists, strict=True)
    ]
    return MixtureSchedule(mixed, size, seed, shuffle, order.when_one_ends or "stop", start)


def _order_of(plan: Plan, seed: int, number: int, shuffle: Shuffle) -> Order:
    return Order(steps_of(plan), seed_of_source(seed, number), shuffle)


def _tokens_of(given: Given, plan: Plan, order: Order) -> int:
    """Return the tokens that a source has given, which are counted unless they are known."""
    if given.tokens is not None:
        return given.tokens
    if len(given.rows) > 1:
        why = "its rows have several lengths"
        raise UserError("cannot mix this source", where=str(plan.folder), why=why)
    return _tokens_of_rows(plan, order, given.rows[0]) if given.rows else 0


def _tokens_of_rows(plan: Plan, order: Order, num_rows: int) -> int:
    """Return the tokens of the first rows of an order over all epochs, without padding."""
    epochs, rest = divmod(num_rows, order.size)
    whole = _tokens_at(plan, order, 0, order.size) if epochs else 0
    return epochs * whole + _tokens_at(plan, order, epochs, rest)


def _tokens_at(plan: Plan, order: Order, epoch: int, stop: int) -> int:
    total = 0
    for first in range(0, stop, ROWS_AT_ONCE):
        places = np.arange(first, min(first + ROWS_AT_ONCE, stop))
        total += int(token_counts(plan, order(epoch, places)).sum())
    return total

"""From the state of a loader to what its epoch has not given yet: see `packing.rest`.

A state names a plan, an order and the rows taken so far, which decide what sequences of the plan
the epoch has given. If the plan is itself the rest of another plan, what that one gave before
counts as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.core.values import counted
from tokenmill.load.legs import given_by, name_of
from tokenmill.load.sources import open_source
from tokenmill.load.steps.order import check_rows, orders_by_length
from tokenmill.load.steps.schedule import seed_of_source
from tokenmill.load.steps.state import LoaderState, SourceState, read_state
from tokenmill.packing.rest import REST_OF, GivenSegments, Rest, RestOf
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan

LOGGER = logging.getLogger(__name__)
State = Mapping[str, Any] | str | Path


Position = tuple[Dataset, Plan, RestOf]
"""How far a run is in the epoch of a plan, which belongs to a dataset or view."""


def rest_of(
    dataset: Dataset,
    state: State,
    *,
    source: int | str | None = None,
    datasets: Sequence[Dataset | str | Path] = (),
) -> Rest:
    """Return what the epoch of a state has not given yet of a dataset.

    Args:
        dataset: the dataset of the state's plan, or a view of all datasets behind that one.
        state: what `state_dict` of a loader returned, or a file with it as JSON.
        source: of a mixture: the name or the number of a source, or the name of its plan.
        datasets: datasets of the run that are no longer where they were.

    Raises:
        UserError: the state is not of a plan of these datasets, or does not say what was given.
        VerificationError: a plan is damaged.
    """
    known = [dataset, *(each if isinstance(each, Dataset) else Dataset(each) for each in datasets)]
    found = read_state(state)
    first = position_in(found, known, source)
    given: list[tuple[GivenSegments, Mapping[int, int]]] = []
    position: Position | None = first
    while position is not None:
        own, plan, at = position
        plan.check_arrays()
        numbers = _shard_numbers(dataset, own, plan)
        given.append((GivenSegments(own, plan, _given_by(plan, at)), numbers))
        if position is first:
            _tell_what_comes_back(dataset, own, numbers)
        position = _position_before(own, plan, found, known)
    return Rest(first[2], given)


def position_in(
    state: LoaderState, known: Sequence[Dataset], source: int | str | None = None
) -> Position:
    """Return how far a state is in its plan; of a mixture, in the plan of one source.

    Args:
        state: the state of a loader.
        known: the dataset that is planned, then others to look for plans in.
        source: the source of a mixture; it can be omitted if only one belongs to the dataset.

    Raises:
        UserError: no plan of the state belongs to the dataset, or several do and `source` chooses
            none of them.
    """
    if "curriculum" in state.progress:
        raise UserError(
            "cannot tell what the epoch of a curriculum has given",
            why="its state does not hold the seed and the epoch of its order",
            hint="pack the whole dataset, and let the curriculum finish its epoch",
        )
    given = given_by(state)
    found: dict[int, tuple[Dataset, Plan]] = {}
    problems: list[UserError] = []
    for each in state.last.sources:
        try:
            found[each] = open_source(state.sources[each], known)
            _shard_numbers(known[0], *found[each])
        except UserError as error:
            found.pop(each, None)
            problems.append(error)
    if not found:
        raise problems[0]
    number = _chosen(state, found, source)
    dataset, plan = found[number]
    seed, shuffle = seed_of_source(state.seed, number), state.order.shuffle or "global"
    sizes = [order.size for order in orders_by_length(plan, seed, shuffle).values()]
    rows = given[number].rows if number < len(given) and given[number].rows else [0] * len(sizes)
    check_rows(rows, sizes, plan)
    epoch, taken = _in_epoch(rows, sizes)
    at = RestOf(
        plan=plan.manifest.plan_id,
        name=plan.folder.name,
        dataset=dataset.manifest.dataset_id,
        seed=seed,
        shuffle=shuffle,
        epoch=epoch,
        rows=taken,
    )
    return dataset, plan, at


def _chosen(
    state: LoaderState, found: Mapping[int, tuple[Dataset, Plan]], source: int | str | None
) -> int:
    """Return the number of the only source, or of the one that `source` names."""
    names = {
        number: (str(number), name_of(state.sources[number]), plan.folder.name)
        for number, (_, plan) in found.items()
    }
    chosen = [number for number, own in names.items() if source is None or str(source) in own]
    if len(chosen) == 1:
        return chosen[0]
    what = "the run has no such source" if source is not None else "which source is meant?"
    several = (f"{number}: {name} (plan {plan})" for number, name, plan in names.values())
    why = f"sources of this dataset are {', '.join(several)}"
    hint = "choose one by its name or number: --source, or source=... in Python"
    raise UserError(what, why=why, hint=hint)


def _in_epoch(rows: Sequence[int], sizes: Sequence[int]) -> tuple[int, list[int]]:
    """Return the epoch that a run is in, and the rows of each length that it has given.

    Each length of rows has epochs of its own, which begin almost together. It is the epoch to
    which the fewest given or missing rows do not belong.
    """

    def others(epoch: int) -> tuple[int, int]:
        pairs = list(zip(rows, sizes, strict=True))
        due = sum(max(epoch * size - count, 0) for count, size in pairs)
        return due, sum(max(count - (epoch + 1) * size, 0) for count, size in pairs)

    epochs = {count // max(size, 1) for count, size in zip(rows, sizes, strict=True)}
    epoch = min(sorted(epochs, reverse=True), key=lambda each: sum(others(each)))
    due, ahead = others(epoch)
    if due or ahead:
        LOGGER.warning(
            "batches hold rows of one length, so that %s of epoch %d were not given yet, and %s of "
            "epoch %d were; the rest is that of epoch %d alone",
            counted(due, "sequence"), epoch - 1, counted(ahead, "sequence"), epoch + 1, epoch,
        )  # fmt: skip
    taken = np.array(rows) - epoch * np.array(sizes)
    return epoch, np.clip(taken, 0, sizes).tolist()


def _given_by(plan: Plan, at: RestOf) -> Callable[[Int64Array], Int64Array]:
    """Return what tells how often sequences were given in the epoch, 0 or 1, shape (n,)."""
    orders = orders_by_length(plan, at.seed, at.shuffle).values()

    def times(sequences: Int64Array) -> Int64Array:
        found = np.zeros(len(sequences), np.int64)
        for order, count in zip(orders, at.rows, strict=True):
            found += order.places(at.epoch, sequences) < count
        return found

    return times


def _position_before(
    own: Dataset, plan: Plan, state: LoaderState, known: Sequence[Dataset]
) -> Position | None:
    """Return the position that a plan is the rest of, or None if it is not a rest.

    Raises:
        UserError: the plan that it is the rest of is missing.
    """
    values = plan.manifest.options.get(REST_OF)
    if values is None:
        return None
    try:
        at = msgspec.convert(values, RestOf)
    except msgspec.ValidationError as error:
        raise plan.damaged(f"{REST_OF}: {error}") from error
    named = SourceState(dataset=at.dataset, tokenizer="", plan=at.plan, plan_name=at.name)
    sources = (each for each in state.sources if (each.dataset, each.plan) == (at.dataset, at.plan))
    try:
        dataset, before = open_source(next(sources, named), [*known, own])
    except UserError as error:
        what = f"cannot find the plan {at.name!r}, of which {plan.folder.name!r} is the rest"
        why = "; ".join(filter(None, (error.what, error.why)))
        raise UserError(what, where=error.where, why=why, hint=error.hint) from error
    sizes = [order.size for order in orders_by_length(before, at.seed, at.shuffle).values()]
    if len(at.rows) != len(sizes) or any(n > most for n, most in zip(at.rows, sizes, strict=True)):
        raise plan.damaged(f"{REST_OF}: rows are {at.rows}, and the plan {at.name} has {sizes}")
    return dataset, before, at


def _shard_numbers(dataset: Dataset, own: Dataset, plan: Plan) -> dict[int, int]:
    """Return the number of each shard in the dataset of a plan, by its number in `dataset`.

    Raises:
        UserError: a dataset behind the plan's is not behind `dataset`.
    """
    firsts: dict[str, list[int]] = {}
    first = 0
    for root in dataset.roots:
        firsts.setdefault(root.manifest.dataset_id, []).append(first)
        first += len(root.shards)
    numbers: dict[int, int] = {}
    for root in own.roots:
        places = firsts.get(root.manifest.dataset_id)
        if not places:
            raise UserError(
                "the dataset lacks documents of the state's plan",
                where=f"{dataset.location}, dataset {dataset.manifest.dataset_id}",
                why=f"the plan {plan.folder.name!r} takes documents from {root.location}, dataset "
                f"{root.manifest.dataset_id}",
                hint="make a view of all datasets of the plan that chooses what you want: "
                "tokenmill select",
            )
        first, before = places.pop(0), len(numbers)
        numbers |= {first + number: before + number for number in range(len(root.shards))}
    return numbers


def _tell_what_comes_back(dataset: Dataset, own: Dataset, numbers: dict[int, int]) -> None:
    """Log a warning if `dataset` has documents that the view of the run had left out."""
    if not own.is_view:
        return
    documents = tokens = 0
    for number, own_number in numbers.items():
        shard, before = dataset.shards[number], own.shards[own_number].selected
        if before is not None:
            back = ~before if shard.selected is None else shard.selected & ~before
            documents += int(back.sum())
            tokens += int(shard.read_lengths()[back].sum())
    if documents:
        LOGGER.warning(
            "%s with %s come back: the view that the run trained on, %s, had left them out",
            counted(documents, "document"),
            counted(tokens, "token"),
            own.location,
        )

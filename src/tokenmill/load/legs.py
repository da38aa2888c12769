"""The legs of a run: what was given before them, their sources, and an amendment by one more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.values import counted
from tokenmill.load.steps.batch_size import BatchSize, check_ramp
from tokenmill.load.steps.mixture import MixtureProgress, MixtureSource, checked_points, points
from tokenmill.load.steps.schedule import Count, Given, OrderIdentity
from tokenmill.load.steps.state import Leg, LoaderState, SourceState, decoded, describe_plan
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan, chosen_plan


def given_by(state: LoaderState) -> list[Given]:
    """Return what each source of the run has given before the step of a state, by number.

    Raises:
        UserError: the state does not say so: it is of a curriculum, or older than amendments.
    """
    if "curriculum" in state.progress:
        hint = "a curriculum changes by its phases: Curriculum.change"
        raise UserError("cannot amend the run of a curriculum", hint=hint)
    last = state.last
    if state.legs and last.first_step == state.step:
        return last.given
    if state.progress.get("step", state.step) != state.step:
        why = f"it ended at step {state.progress['step']}, before step {state.step}"
        raise UserError("the mixture of the state has ended", why=why)
    if not {"lags", "rows"} & state.progress.keys():
        hint = "load it into its loader, and save it again"
        raise UserError("the state does not say what was given before its step", hint=hint)
    return given_after(last.given, last.sources, state.progress)


def given_after(
    given: Sequence[Given], numbers: Sequence[int], progress: dict[str, Any]
) -> list[Given]:
    """Return what each source of a run has given after a leg.

    Args:
        given: what each source gave before the leg; those that are not listed gave none.
        numbers: numbers of the leg's sources in the run.
        progress: the progress of its schedule at its end.
    """
    found = [*given, *[Given()] * (max(numbers) + 1 - len(given))]
    if "lags" in progress:
        mixed = decoded(progress, MixtureProgress, "a mixture")
        lists = numbers, mixed.rows, mixed.tokens, mixed.lags
        if {len(each) for each in lists} != {len(numbers)}:
            raise UserError("the state belongs to another mixture")
        for number, num_rows, tokens, lag in zip(*lists, strict=True):
            found[number] = Given([num_rows], tokens, lag)
    else:
        rows = decoded(progress.get("rows"), list[Count], "a loader")
        found[numbers[0]] = Given(rows, None)
    return found


@dataclass(frozen=True, slots=True)
class LegSource:
    """A source of a leg."""

    state: SourceState
    share: list[tuple[int, float]] | None
    """Points (step, share). None: the source is a plan alone, no mixture."""
    epochs: int | None = 1
    tokens: int | None = None

    @staticmethod
    def of(source: MixtureSource) -> LegSource:
        """Return a source of a mixture as a source of a leg."""
        described = describe_plan(source.dataset, source.plan, source.name)
        return LegSource(described, points(source), source.epochs, source.tokens)

    def opened(self, dataset: Dataset, plan: Plan) -> MixtureSource:
        """Return the source as one of a mixture; alone, its share does not matter."""
        return MixtureSource(
            dataset=dataset,
            plan=plan,
            share=1.0 if self.share is None else tuple(self.share),
            epochs=self.epochs,
            tokens=self.tokens,
            name=self.state.name,
        )


def sources_of(state: LoaderState) -> list[LegSource]:
    """Return the sources of the last leg of a state.

    Raises:
        UserError: the state contradicts itself.
    """
    order, count, epochs = state.order, len(state.present), state.last.epochs
    if not order.shares:
        return [LegSource(state.present[0], None, epochs[0])]
    lists = state.present, order.points, epochs, order.tokens or [None] * count
    if {len(each) for each in lists} != {count}:
        raise UserError("not the state of a loader", why="its sources and shares do not fit")
    return [LegSource(*each) for each in zip(*lists, strict=True)]


def with_shares(sources: list[LegSource], shares: Mapping[str, float]) -> list[LegSource]:
    """Return the sources of a mixture with some shares replaced.

    Raises:
        UserError: a source does not exist, or a share is not valid.
    """
    if sources[0].share is None and len(sources) == 1:
        raise UserError("the run is no mixture", hint="add a source: --source, or sources=[...]")
    found = by_name(sources)
    try:
        pairs = dict(shares).items()
    except (TypeError, ValueError) as error:
        hint = "give the shares by the names of sources: {'code': 0.3}"
        raise UserError("shares must be a mapping", why=f"got {shares!r}", hint=hint) from error
    for name, share in pairs:
        if name not in found:
            why = f"they are {', '.join(map(repr, found))}"
            raise UserError(f"the mixture has no source {name!r}", why=why)
        found[name] = replace(found[name], share=checked_points(share, name))
    if not any(value > 0 for each in found.values() for _, value in each.share or []):
        raise UserError("at least one share must be above 0")
    return [replace(each, share=each.share or [(0, 1.0)]) for each in found.values()]


def by_name(sources: Sequence[LegSource]) -> dict[str, LegSource]:
    """Return sources by their names.

    Raises:
        UserError: two have the same name.
    """
    found = {name_of(each.state): each for each in sources}
    if len(found) < len(sources):
        why = f"they are {', '.join(repr(name_of(each.state)) for each in sources)}"
        raise UserError("two sources have the same name", why=why, hint="give each another name")
    return found


def other_plan(
    before: Sequence[LegSource], dataset: Dataset | str | Path | None, plan: Plan | str | Path
) -> LegSource:
    """Return a plan as the only source of a leg; by default one of the same dataset.

    Raises:
        UserError: the run is a mixture, or the dataset or the plan is not there.
    """
    if before[0].share is not None:
        hint = "name the source that it is for: --source NAME=DATASET:PLAN, or sources=[...]"
        raise UserError("a mixture has no plan of its own", hint=hint)
    opened = before[0].state.location if dataset is None else dataset
    opened = opened if isinstance(opened, Dataset) else Dataset(opened)
    return LegSource(describe_plan(opened, chosen_plan(opened, plan)), None)


def named_plan(name: str, dataset: str, plan: str, before: LegSource | None) -> LegSource:
    """Return a plan as a source of a mixture, with the share of the source before it.

    Raises:
        UserError: the dataset or the plan is not there.
    """
    found = LegSource.of(MixtureSource.of(dataset, plan, name=name))
    if before is None:
        return found
    return replace(found, share=before.share or found.share, epochs=before.epochs)


def name_of(source: SourceState) -> str:
    """Return the name of a source; without one, that of its dataset's folder."""
    return source.name or source.location.rstrip("/").rsplit("/", 1)[-1] or source.dataset


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


def amended(
    state: LoaderState,
    sources: Sequence[LegSource] | None = None,
    *,
    shares: Mapping[str, float] | None = None,
    dataset: Dataset | str | Path | None = None,
    plan: Plan | str | Path | None = None,
    global_batch: BatchSize | None = None,
    when_one_ends: Literal["stop", "go on"] | None = None,
    set_shares: bool = False,
) -> LoaderState:
    """Return a state with one leg more, which begins at its step.

    Args:
        state: the state of a loader.
        sources: the sources of the leg; None: as before. Those that were in the run before go on
            where they were.
        shares: new shares of sources by name.
        dataset: the dataset of `plan`; None: as before.
        plan: another plan, for a run without a mixture.
        global_batch: size of a global batch; None: as before.
        when_one_ends: as for `mix`; None: as before.
        set_shares: whether the trainer sets the shares.

    Raises:
        UserError: nothing changes, options contradict each other, or the leg does not fit to the
            run.
    """
    if all(each is None for each in (sources, shares, plan, global_batch, when_one_ends)):
        hint = "give shares, sources, a plan or a batch size"
        raise UserError("nothing to amend", hint=hint)
    if sources is not None and plan is not None:
        raise UserError("give sources or a plan", why="a run is of one plan, or of a mixture")
    if dataset is not None and plan is None:
        raise UserError("the dataset has no plan", hint="name a plan of it as well")
    sources = sources_of(state) if sources is None else list(sources)
    if not sources:
        raise UserError("no source is left", hint="leave at least one, or add one")
    if plan is not None:
        sources = [other_plan(sources, dataset, plan)]
    becomes_mixture = len(sources) > 1 and any(source.share is None for source in sources)
    if shares is not None or becomes_mixture:
        sources = with_shares(sources, shares or {})
    given = given_by(state)
    *legs, last = state.all_legs
    if last.first_step < state.step:
        legs.append(msgspec.structs.replace(last, ranks=state.ranks, given=[]))
    table = list(state.sources)
    numbers: list[int] = []
    for source in sources:
        number = _number_in(table, source.state, numbers)
        table[number : number + 1] = [source.state]
        numbers.append(number)
    if global_batch is not None:
        check_ramp(global_batch.points)
    new = Leg(
        first_step=state.step,
        sources=numbers,
        epochs=[source.epochs for source in sources],
        global_batch=global_batch or state.global_batch,
        order=_order_of(state, sources, when_one_ends),
        given=given,
        ranks=state.ranks,
        set_shares=set_shares,
    )
    return _with_legs(state, [*legs, new], sources=table, progress={})


def _with_legs(state: LoaderState, legs: list[Leg], **changes: Any) -> LoaderState:
    """Return a state with other legs, of which it describes the last one, and other changes."""
    last = legs[-1]
    described = {"epochs": last.epochs, "global_batch": last.global_batch, "order": last.order}
    return msgspec.structs.replace(state, legs=legs, **described, **changes)


def _order_of(
    state: LoaderState,
    sources: Sequence[LegSource],
    when_one_ends: Literal["stop", "go on"] | None,
) -> OrderIdentity:
    """Return the settings of the order of a new leg.

    Raises:
        UserError: rows of a mixture have different lengths, or an option is not for a plan alone.
    """
    if sources[0].share is None:
        if when_one_ends is not None:
            why = "a plan alone ends with its last epoch"
            raise UserError("when_one_ends is an option of mixtures", why=why)
        return OrderIdentity(shuffle=state.order.shuffle)
    _check_row_lengths([source.state for source in sources])
    return OrderIdentity.of_mixture(
        state.order.shuffle or "global",
        when_one_ends or state.order.when_one_ends or "stop",
        [source.share or [] for source in sources],
        [source.tokens for source in sources],
    )


def _check_row_lengths(sources: Sequence[SourceState]) -> None:
    """Raise a UserError if the sources of a mixture have rows of different lengths."""
    if len({each.row_length for each in sources} - {0}) > 1:
        why = ", ".join(f"{name_of(each)} has {each.row_length:,} tokens" for each in sources)
        hint = "give each source a plan of the same length: --source NAME=DATASET:PLAN for each"
        raise UserError("the sources have rows of different lengths", why=why, hint=hint)


def _number_in(table: Sequence[SourceState], source: SourceState, taken: Sequence[int]) -> int:
    """Return the number of a source in a run: that of the same plan if it is free, or a new one.

    Raises:
        UserError: it has another tokenizer.
    """
    if source.tokenizer != table[0].tokenizer:
        why = f"the run has {table[0].tokenizer}, {name_of(source)} has {source.tokenizer}"
        hint = "encode the texts with the tokenizer of the run"
        raise UserError("a run cannot change its tokenizer", why=why, hint=hint)
    same = (
        number
        for number, each in enumerate(table)
        if (each.dataset, each.plan) == (source.dataset, source.plan) and number not in taken
    )
    return next(same, len(table))


def at_step(state: LoaderState, step: int, ranks: int) -> LoaderState:
    """Return the state of an amended run at another step, without progress."""
    legs = [leg for leg in state.legs if leg.first_step <= step]
    found = _with_legs(state, legs, step=step, ranks=ranks, progress={})
    count = len(legs[0].sources)
    if len(legs) == 1 and legs[0].sources == [*range(count)] and not legs[0].set_shares:
        # before all amendments
        return msgspec.structs.replace(found, legs=[], sources=state.sources[:count])
    return found


def with_epochs(state: LoaderState, epochs: list[int | None]) -> LoaderState:
    """Return an amended state whose last leg ends after other epochs."""
    last = msgspec.structs.replace(state.legs[-1], epochs=epochs)
    return _with_legs(state, [*state.legs[:-1], last])

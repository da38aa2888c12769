"""Mix several plans by shares of tokens.

Each row comes from the source that is furthest behind its share of the tokens so far, not counting
padding. So no source is ever more than one row ahead of its share, or more rows behind it than
there are other sources. This holds as long as no share drops to 0: what such a source was behind
is lost to the others. Shares can change over the steps, linearly between the given points:

    shares of web  ((0, 0.9), (1000, 0.5))      0.9 at step 0, 0.7 at step 500, 0.5 from 1000 on

A source ends after its epochs or its tokens, whichever comes first. By default, it is not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.kernels.batches import choose_sources
from tokenmill.load.steps.batch_size import BatchSize
from tokenmill.load.steps.order import Order, Shuffle, steps_of
from tokenmill.load.steps.schedule import (
    Count,
    GlobalBatch,
    OrderIdentity,
    Schedule,
    Start,
    Uses,
    only_row_length,
    seed_of_source,
    token_counts,
)
from tokenmill.load.steps.state import decoded
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan, open_plan

WHOLE = 1 << 20
"""Sum of all shares. Shares are integers, so that the order is the same on any machine."""

MOST_KEPT = 256
"""Positions that are kept, evenly spaced, to go back to earlier steps."""
MAX_SHARE = 1e9
ENDLESS = 1 << 62
Points = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureSource:
    """A plan and its share of a mixture."""

    dataset: Dataset
    plan: Plan
    share: float | Points = 1.0
    """Share of tokens relative to the other sources, or (step, share) points to change it."""
    epochs: int | None = 1
    """Number of epochs of the plan. None: repeat without end."""
    tokens: int | None = None
    """Number of tokens after which the source ends, if that is before its epochs end."""
    name: str = ""

    @staticmethod
    def of(
        dataset: Dataset | str | Path,
        plan: str | Path,
        *,
        share: float | Points = 1.0,
        epochs: int | None = 1,
        tokens: int | None = None,
        name: str = "",
    ) -> MixtureSource:
        """Create a source from the folder of a dataset and the name of a plan.

        Raises:
            UserError: the dataset or the plan does not exist.
        """
        opened = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
        return MixtureSource(
            dataset=opened,
            plan=open_plan(opened, plan),
            share=share,
            epochs=epochs,
            tokens=tokens,
            name=name,
        )


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What a mixture has taken from a source so far."""

    name: str
    rows: int
    tokens: int
    """Tokens, without padding."""
    epochs: float
    """Epochs of its plan; above 1, sequences were repeated."""
    share: float
    """Share of all tokens of the mixture."""
    has_ended: bool


class MixtureProgress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The position of a mixture before a step. Lists have one value per source."""

    step: Count
    rows: list[Count]
    tokens: list[Count]
    lags: list[Annotated[int, Meta(gt=-(1 << 62), lt=1 << 62)]]
    """Tokens that each source is behind its share, times WHOLE."""


@dataclass
class MixtureSchedule(Schedule):
    """The steps of a mixture. Each step depends on those before it.

    Raises:
        UserError: the sources cannot be mixed, or a share is invalid.
    """

    sources: Sequence[MixtureSource]
    size: BatchSize
    seed: int = 0
    shuffle: Shuffle = "global"
    when_one_ends: Literal["stop", "go on"] = "stop"
    """Stop with the first source that ends, or give its share to the others."""
    start: Start | None = None
    """Where the mixture begins, if it is not the first leg of a run."""
    _progress: MixtureProgress = field(init=False)
    _walked: tuple[int, Int64Array] = field(init=False)
    """See `_rows_of_steps`."""

    def __post_init__(self) -> None:
        _check(self.sources)
        if self.when_one_ends not in ("stop", "go on"):
            why = f"got {self.when_one_ends!r}"
            raise UserError("when_one_ends must be 'stop' or 'go on'", why=why)
        self._row_length = only_row_length(self.sources[0].plan)
        if min(self.row_counts) < 1:
            why = f"it has {self.size.tokens} tokens, and a row has {self._row_length}"
            raise UserError("the global batch is smaller than a row", why=why)
        start = self.start or Start.of_run(len(self.sources))
        self._orders = [
            Order(steps_of(source.plan), seed_of_source(self.seed, number), self.shuffle)
            for number, source in zip(start.numbers, self.sources, strict=True)
        ]
        self.source_names = names_of(self.sources)
        self._first = MixtureProgress(
            step=start.step,
            rows=[sum(each.rows) for each in start.given],
            tokens=[each.tokens or 0 for each in start.given],
            lags=[each.lag for each in start.given],
        )
        self._begin_at(self._first)

    @property
    def source_epochs(self) -> list[int | None]:
        return [source.epochs for source in self.sources]

    @property
    def num_steps(self) -> int | None:
        return None

    @property
    def row_counts(self) -> list[int]:
        return [rows for _, rows in self.size.ramp_of(self._row_length)]

    @property
    def rows_left(self) -> int:
        """Sequences that no step has used so far, of sources that end."""
        pairs = zip(self.sources, self._progress.rows, strict=True)
        return sum(
            max(source.epochs * len(source.plan) - rows, 0)
            for source, rows in pairs
            if source.epochs is not None
        )

    def batch(self, step: int) -> GlobalBatch | None:
        """Return the global batch of a step, or None after the last step.

        The next step takes constant time, and the last one again takes none. Other steps are
        computed from the closest known position before them.
        """
        if self._last is not None and self._before_last.step == step:
            self._progress, batch = self._last
            return batch
        self._go_to(step)
        return None if self._progress.step < step else self._advance()

    def report(self) -> list[SourceReport]:
        """Return what the mixture has taken from each source before the next step."""
        now = self._progress
        total = max(sum(now.tokens), 1)
        return [
            SourceReport(
                name=source.name or str(source.plan.folder),
                rows=now.rows[number],
                tokens=now.tokens[number],
                epochs=now.rows[number] / self._orders[number].size,
                share=now.tokens[number] / total,
                has_ended=min(self._room(number)) <= 0,
            )
            for number, source in enumerate(self.sources)
        ]

    def epochs(self, step: int) -> dict[str, float]:
        if self._progress.step != step:
            self._go_to(step)
        reports, sizes = self.report(), [order.size for order in self._orders]
        pairs = zip(self.source_names, reports, strict=True)
        of_sources = {f"epochs/{name}": report.epochs for name, report in pairs}
        return {"epoch": sum(report.rows for report in reports) / sum(sizes), **of_sources}

    def identity(self) -> OrderIdentity:
        shares, tokens = map(points, self.sources), (source.tokens for source in self.sources)
        return OrderIdentity.of_mixture(self.shuffle, self.when_one_ends, [*shares], [*tokens])

    def progress(self, step: int) -> dict[str, Any]:
        """Return what the mixture has taken from each source before a step."""
        self._go_to(step)
        values: dict[str, Any] = msgspec.to_builtins(self._progress)
        return values

    def resume(self, step: int, progress: dict[str, Any]) -> None:
        """Resume from `progress`.

        Raises:
            UserError: it does not belong to a mixture with the same number of sources.
        """
        found = decoded(progress, MixtureProgress, "a mixture")
        sizes = {len(found.rows), len(found.tokens), len(found.lags)}
        if sizes != {len(self.sources)} or found.step > step:
            raise UserError("the state belongs to another mixture")
        self._begin_at(found)

    def uses(
        self, number: int, sequences: Int64Array, stop: int, *, whole_epoch: bool = False
    ) -> Uses:
        """Return when sequences of a source are used before the step `stop`.

        With `whole_epoch`, also those that the source may give later in its epoch.
        """
        order, epochs = self._orders[number], self.sources[number].epochs
        given = self._rows_of_steps(stop)[:, number]
        end = int(given[-1])
        if whole_epoch and (epochs is None or end < epochs * order.size):
            end = (end // order.size + 1) * order.size
        members, rows = order.rows_of(sequences, int(given[0]), end)
        steps = np.searchsorted(given, rows, side="right") - 1
        steps = np.where(rows < given[-1], self._first.step + steps, -1)
        return Uses.joined([Uses(members, steps, rows // order.size)])

    def _rows_of_steps(self, stop: int) -> Int64Array:
        """Return the rows of each source before each step until `stop`, shape (n, num_sources).

        It is computed from the first step on.
        """
        if self._walked[0] != stop:
            self._go_to(self._first.step)
            found = [self._progress.rows]
            while self._progress.step < stop and self._advance() is not None:
                found.append(self._progress.rows)
            self._walked = stop, np.array(found, np.int64)
        return self._walked[1]

    def standing(self) -> object:
        return self._progress

    def follow(self, standing: object) -> None:
        assert isinstance(standing, MixtureProgress)
        self._progress = standing
        self._keep(standing)

    def __copy__(self) -> MixtureSchedule:
        """Copy with positions of its own, because another thread may add to them."""
        found = object.__new__(type(self))
        found.__dict__.update(self.__dict__)
        found._kept = dict(self._kept)
        return found

    def _begin_at(self, progress: MixtureProgress) -> None:
        self._start = self._before_last = self._progress = progress
        self._last: tuple[MixtureProgress, GlobalBatch] | None = None
        """The last computed batch, and the position after it."""
        self._kept = {self._first.step: self._first}
        """Positions before some steps, one for each `_interval` steps."""
        self._interval = 1
        self._walked = -1, np.empty((0, len(self.sources)), np.int64)

    def _keep(self, progress: MixtureProgress) -> None:
        if progress.step % self._interval == 0:
            self._kept[progress.step] = progress
        if len(self._kept) > MOST_KEPT:
            self._interval *= 2
            kept = self._kept.items()
            self._kept = {step: each for step, each in kept if step % self._interval == 0}

    def _go_to(self, step: int) -> None:
        """Move to a step, or to the end."""
        known = (self._progress, self._before_last, self._start, self._first, *self._kept.values())
        self._progress = max(
            (each for each in known if each.step <= step), key=lambda each: each.step
        )
        while self._progress.step < step and self._advance() is not None:
            pass

    def _advance(self) -> GlobalBatch | None:
        """Return the next step's rows, or None if there are too few."""
        now = self._progress
        count = self.size.rows_of(self._row_length, now.step)
        candidates, epochs, tokens = np.zeros((3, len(self.sources), count), np.int64)
        room = np.zeros((len(self.sources), 2), np.int64)
        for number, source in enumerate(self.sources):
            room[number] = self._room(number)
            most = min(count, int(room[number, 0]))
            found = self._orders[number].across_epochs(now.rows[number], most)
            candidates[number, :most], epochs[number, :most] = found
            tokens[number, :most] = token_counts(source.plan, found[0])
        lags = np.array(now.lags, np.int64)
        stops = self.when_one_ends == "stop"
        chosen, taken = choose_sources(
            tokens, lags, room, self._shares(now.step), (self._row_length, stops)
        )
        if len(chosen) < count:
            return None
        given = [int(tokens[i, : taken[i]].sum()) for i in range(len(self.sources))]
        self._progress = MixtureProgress(
            step=now.step + 1,
            rows=[before + int(more) for before, more in zip(now.rows, taken, strict=True)],
            tokens=[before + more for before, more in zip(now.tokens, given, strict=True)],
            lags=lags.tolist(),
        )
        self._keep(self._progress)
        place = _running_count(chosen)
        batch = GlobalBatch(
            chosen, candidates[chosen, place], epochs[chosen, place], self._row_length
        )
        self._before_last, self._last = now, (self._progress, batch)
        return batch

    def _room(self, number: int) -> tuple[int, int]:
        """Return the rows and tokens that are left of a source."""
        source, now = self.sources[number], self._progress
        most = ENDLESS if source.epochs is None else source.epochs * self._orders[number].size
        budget = ENDLESS if source.tokens is None else source.tokens - now.tokens[number]
        left = max(most - now.rows[number], 0), max(budget, 0)
        return min(left[0], ENDLESS), min(left[1], ENDLESS)

    def _shares(self, step: int) -> Int64Array:
        """Return the shares at a step, shape (num_sources,). They add up to WHOLE, or to 0."""
        values = []
        for source in self.sources:
            steps, shares = zip(*points(source), strict=True)
            values.append(float(np.interp(step, steps, shares)))
        total = sum(values)
        if total <= 0:
            return np.zeros(len(values), np.int64)
        exact = np.array(values) / total * WHOLE
        whole = np.where(exact > 0, np.maximum(np.floor(exact), 1), 0).astype(np.int64)
        whole[np.argmax(whole)] += WHOLE - whole.sum()
        return whole


def _check(sources: Sequence[MixtureSource]) -> None:
    if not sources:
        raise UserError("a mixture needs at least one source")
    for source in sources:
        _check_is_open(source)
    first = sources[0]
    for source in sources:
        where = str(source.plan.folder)
        tokenizers = [each.dataset.manifest.tokenizer.sha256 for each in (first, source)]
        if tokenizers[0] != tokenizers[1]:
            why = f"{tokenizers[0]} and {tokenizers[1]}"
            raise UserError("the sources have different tokenizers", where=where, why=why)
        lengths = [only_row_length(each.plan) for each in (first, source)]
        if lengths[0] != lengths[1]:
            why = f"{lengths[0]} and {lengths[1]} tokens"
            raise UserError("the sources have rows of different lengths", where=where, why=why)
        if any(limit is not None and limit < 1 for limit in (source.epochs, source.tokens)):
            why = f"epochs={source.epochs}, tokens={source.tokens}"
            hint = "use None for no limit; to leave a source out, set its share to 0"
            raise UserError(
                "epochs and tokens of a source must be above 0", where=where, why=why, hint=hint
            )
        points(source)
        if not len(source.plan):
            raise UserError("the plan has no sequences", where=where)
    if not any(share > 0 for source in sources for _, share in points(source)):
        raise UserError("at least one share must be above 0")


def _check_is_open(source: Any) -> None:
    plan = source.plan if isinstance(source, MixtureSource) else source
    if not isinstance(plan, Plan):
        raise UserError(
            "a source of a mixture must have an open plan",
            why=f"got {plan!r}",
            hint="MixtureSource.of(dataset, plan_name) opens both",
        )


def checked_points(share: float | Points, where: str) -> list[tuple[int, float]]:
    """Return the points of a share; a constant share is one point.

    Raises:
        UserError: they are not sorted by step, or a share is not a number in the allowed range.
    """
    try:
        found = share if isinstance(share, (tuple, list)) else ((0, share),)
        pairs = [(int(step), float(value)) for step, value in found]
    except (TypeError, ValueError) as error:
        why = f"got {share!r}: {error}"
        raise UserError("a share must be a number or (step, share) points", why=why) from error
    steps = [step for step, _ in pairs]
    if not pairs or steps != sorted(set(steps)):
        raise UserError("the points of a share must be sorted by step", where=where)
    if not all(0 <= value <= MAX_SHARE for _, value in pairs):  # also refuses NaN
        why = f"got {share!r}"
        raise UserError(f"a share must be between 0 and {MAX_SHARE:g}", where=where, why=why)
    return pairs


def names_of(sources: Sequence[MixtureSource]) -> list[str]:
    """Return the names of sources, or their numbers: of one without a name, or if two are equal."""
    names = [source.name or str(number) for number, source in enumerate(sources)]
    return names if len({*names}) == len(names) else [str(number) for number in range(len(names))]


def points(source: MixtureSource) -> list[tuple[int, float]]:
    """Return the points of a source's share."""
    return checked_points(source.share, str(source.plan.folder))


def _running_count(chosen: Int64Array) -> Int64Array:
    """Return how often each value occurs before its position."""
    order = np.argsort(chosen, kind="stable")
    firsts = np.searchsorted(chosen[order], chosen[order])
    counts = np.empty(len(chosen), np.int64)
    counts[order] = np.arange(len(chosen)) - firsts
    return counts

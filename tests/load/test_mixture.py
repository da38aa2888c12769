"""Mixtures: shares of tokens at every row, ends and repeats, and runs that are resumed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import xxhash
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from loading_kit import PAD, as_lists, digits, plan_of, write_tokenizer

from tokenmill import Dataset
from tokenmill.core.errors import UserError
from tokenmill.load.opening import mix_batches
from tokenmill.load.steps.batch_size import BatchSize
from tokenmill.load.steps.mixture import MixtureSchedule, MixtureSource, Points, SourceReport
from tokenmill.load.steps.order import Order, Shuffle, steps_of
from tokenmill.load.steps.plan_schedule import PlanSchedule
from tokenmill.load.steps.schedule import GlobalBatch

ROW = 8
"""Tokens of a full row."""
SourceOf = Callable[..., MixtureSource]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    """One document of seven times the same digit each: 1, 2, 3."""
    folder = tmp_path_factory.mktemp("digits")
    tokenizer = write_tokenizer(folder / "tokenizer.json")
    return [digits(folder / digit, [digit * 7], tokenizer) for digit in "123"]


@pytest.fixture(scope="module")
def source(datasets: list[Dataset], folders: Iterable[Path]) -> SourceOf:
    """A source whose rows have these numbers of tokens."""

    def make(
        fills: list[int], share: float | Points = 1, of: int = 0, **options: Any
    ) -> MixtureSource:
        rows = [[(0, 0, fill)] for fill in fills]
        plan = plan_of(next(iter(folders)), datasets[of], rows, sequence_length=ROW)
        return MixtureSource(dataset=datasets[of], plan=plan, share=share, **options)

    return make


def mixture(*sources: MixtureSource, rows: int = 1, **options: Any) -> MixtureSchedule:
    return MixtureSchedule(list(sources), BatchSize(rows=rows), **options)


def steps_in(schedule: MixtureSchedule, most: int = 1000) -> list[GlobalBatch]:
    """All steps, or the first of them."""
    found: list[GlobalBatch] = []
    while len(found) < most and (batch := schedule.batch(len(found))) is not None:
        found.append(batch)
    return found


def sources_in(schedule: MixtureSchedule, most: int = 1000) -> list[list[int]]:
    return [batch.sources.tolist() for batch in steps_in(schedule, most)]


def shown(batches: Iterable[GlobalBatch | None]) -> list[Any]:
    """Of each step: (source, sequence, epoch) of its rows."""
    return [
        batch
        and list(
            zip(
                batch.sources.tolist(),
                batch.sequences.tolist(),
                batch.epochs.tolist(),
                strict=True,
            )
        )
        for batch in batches
    ]


def seed_of(number: int, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(f"{seed} source {number}".encode()) if number else seed


def through_json(values: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(values))
    return result


# Small mixtures.


@pytest.mark.parametrize("shuffle", ["global", "blocks", "none"])
@pytest.mark.parametrize("rows", [1, 3, 7])
def test_one_source_is_its_plan(rows: int, shuffle: Shuffle, source: SourceOf) -> None:
    only = source([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3], epochs=3)
    size = BatchSize(rows=rows)
    plain = PlanSchedule(only.plan, size, seed=4, shuffle=shuffle, epochs=3)
    expected = shown(plain.batch(step) for step in range(33 // rows))
    mixed = mixture(only, rows=rows, seed=4, shuffle=shuffle)
    assert shown(steps_in(mixed)) == expected
    assert mixed.rows_left == plain.rows_left == 33 % rows
    assert mixed.num_steps is None


def test_rows_are_those_of_their_source(source: SourceOf) -> None:
    three = [source([2, 3], of=number, epochs=None) for number in range(3)]
    columns = ("input_ids", "task_ids")
    batch = mix_batches(three, batch_size=60, columns=columns).batch(0)
    ids, tasks = as_lists(batch).values()
    assert {(task, *row) for row, task in zip(ids, tasks, strict=True)} == {
        (task, *[digit] * fill, *[PAD] * (ROW - fill))
        for task, digit in enumerate((1, 2, 3))
        for fill in (2, 3)
    }


# Shares that change.


def test_shares_move_in_straight_lines_between_steps(source: SourceOf) -> None:
    falling = source([ROW] * 200, share=((0, 1.0), (10, 0.0)))
    rising = source([ROW] * 200, share=((0, 0.0), (10, 1.0)))
    found = sources_in(mixture(falling, rising, rows=10), most=13)
    assert [step.count(0) for step in found] == [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0]


# Ends.


def test_the_mixture_stops_with_the_first_source_that_ends(source: SourceOf) -> None:
    """At the row that would be one of its own again: until then, others still give theirs."""
    schedule = mixture(source([ROW] * 3), source([ROW] * 9))
    assert sources_in(schedule) == [[0], [1], [0], [1], [0], [1]]
    assert schedule.rows_left == 6
    assert [report.has_ended for report in schedule.report()] == [True, False]


def test_or_gives_its_share_to_the_others(source: SourceOf) -> None:
    sources = source([ROW] * 2, share=2), source([ROW] * 3), source([ROW] * 5)
    schedule = mixture(*sources, when_one_ends="go on")
    found = [number for step in sources_in(schedule) for number in step]
    assert found == [0, 1, 2, 0, 1, 2, 1, 2, 2, 2]
    assert schedule.rows_left == 0
    assert [report.has_ended for report in schedule.report()] == [True, True, True]


def test_a_source_ends_with_the_row_that_reaches_its_tokens(source: SourceOf) -> None:
    budgets = source([ROW] * 9, tokens=17), source([ROW] * 9, tokens=16)
    found = sources_in(mixture(*budgets, when_one_ends="go on"))
    assert found == [[0], [1], [0], [1], [0]]


# Reports.


def test_a_report_says_what_every_source_has_given(source: SourceOf) -> None:
    web = source([4] * 10, share=1, name="web", epochs=2)
    books = source([ROW] * 10, share=3)
    schedule = mixture(web, books, rows=5)
    assert [report.rows for report in schedule.report()] == [0, 0]
    schedule.batch(1)
    assert schedule.report() == [
        SourceReport(name="web", rows=4, tokens=16, epochs=0.4, share=0.25, has_ended=False),
        SourceReport(
            name=str(books.plan.folder),
            rows=6,
            tokens=48,
            epochs=0.6,
            share=0.75,
            has_ended=False,
        ),
    ]


# The bound that is promised, at every row.

FILLS = st.lists(st.integers(1, ROW), min_size=1, max_size=25)
SHARES = st.floats(0.01, 100)
Deviations = list[list[float]]


def deviations(
    schedule: MixtureSchedule, shares: Callable[[int], list[float]], fills: list[list[int]]
) -> Deviations:
    """After each row: tokens that each source has given beyond its share of all."""
    ahead = np.zeros(len(fills))
    found = []
    for step, rows in enumerate(shown(steps_in(schedule, most=40))):
        share = np.array(shares(step)) / sum(shares(step))
        for number, sequence, _ in rows:
            tokens = fills[number][sequence]
            ahead -= share * tokens
            ahead[number] += tokens
            found.append(ahead.tolist())
    return found


def is_bounded(found: Deviations) -> bool:
    """At most one row ahead, and one row for each other source behind.

    Shares are rounded to parts of WHOLE, which over all rows is less than 0.1 token.
    """
    behind = -(len(found[0]) - 1) * ROW if found else 0
    return all(behind - 0.1 <= value <= ROW + 0.1 for row in found for value in row)


@settings(max_examples=60, deadline=None)
@given(
    fills=st.lists(FILLS, min_size=1, max_size=5),
    shares=st.lists(SHARES, min_size=5, max_size=5),
    rows=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_no_prefix_of_rows_is_far_from_the_shares(
    fills: list[list[int]], shares: list[float], rows: int, seed: int, source: SourceOf
) -> None:
    shares = shares[: len(fills)]
    sources = [source(each, share, epochs=None) for each, share in zip(fills, shares, strict=True)]
    schedule = mixture(*sources, rows=rows, seed=seed)
    found = deviations(schedule, lambda _: shares, fills)
    assert len(found) == 40 * rows
    assert is_bounded(found)


@settings(max_examples=40, deadline=None)
@given(
    fills=st.lists(FILLS, min_size=2, max_size=4),
    ends=st.lists(st.tuples(SHARES, SHARES), min_size=4, max_size=4),
    last=st.integers(1, 50),
    rows=st.integers(1, 3),
)
def test_nor_where_shares_change(
    fills: list[list[int]],
    ends: list[tuple[float, float]],
    last: int,
    rows: int,
    source: SourceOf,
) -> None:
    ends = ends[: len(fills)]
    sources = [
        source(each, ((0, first), (last, final)), epochs=None)
        for each, (first, final) in zip(fills, ends, strict=True)
    ]

    def shares(step: int) -> list[float]:
        part = min(step / last, 1)
        return [first + (final - first) * part for first, final in ends]

    assert is_bounded(deviations(mixture(*sources, rows=rows), shares, fills))


def test_what_a_share_that_falls_to_nothing_was_behind_the_others_have_been_given(
    source: SourceOf,
) -> None:
    """Two of eight sources have given a row each when the other six lose their shares."""
    fills = [[ROW]] * 8
    fading: Points = ((1, 1.0), (2, 0.0))
    sources = [source([ROW], 1.0, epochs=None) for _ in range(2)]
    sources += [source([ROW], fading, epochs=None) for _ in range(6)]

    def shares(step: int) -> list[float]:
        return [1, 1] + [1 if step < 2 else 0] * 6

    found = deviations(mixture(*sources), shares, fills)
    assert is_bounded(found[:2])
    assert not is_bounded(found[2:])
    assert found[1] == [6, 6, -2, -2, -2, -2, -2, -2]
    assert all(row[2:] == found[1][2:] for row in found[2:])
    assert is_bounded([[value - 6 for value in row[:2]] for row in found[2:]])


# What always holds.


@st.composite
def mixtures(draw: st.DrawFn) -> dict[str, Any]:
    """Everything that a mixture is made of, but for the folders."""
    num_sources = draw(st.integers(1, 4))
    return {
        "fills": [draw(FILLS) for _ in range(num_sources)],
        "epochs": [draw(st.integers(1, 3)) for _ in range(num_sources)],
        "tokens": [draw(st.none() | st.integers(1, 150)) for _ in range(num_sources)],
        "shares": [
            draw(SHARES | st.just(0) | st.tuples(SHARES, SHARES).map(as_points))
            for _ in range(num_sources)
        ],
        "rows": draw(st.integers(1, 6)),
        "seed": draw(st.integers(0, 9)),
        "shuffle": draw(st.sampled_from(["global", "blocks", "none"])),
        "when_one_ends": draw(st.sampled_from(["stop", "go on"])),
    }


def as_points(shares: tuple[float, float]) -> Points:
    return ((1, shares[0]), (9, shares[1]))


def sources_of(case: dict[str, Any], source: SourceOf) -> list[MixtureSource]:
    assume(any(case["shares"]))
    values = zip(case["fills"], case["shares"], case["epochs"], case["tokens"], strict=True)
    return [
        source(fills, share, epochs=epochs, tokens=tokens)
        for fills, share, epochs, tokens in values
    ]


def mixture_of(case: dict[str, Any], sources: list[MixtureSource]) -> MixtureSchedule:
    names = ("rows", "seed", "shuffle", "when_one_ends")
    return mixture(*sources, **{name: case[name] for name in names})


@settings(max_examples=60, deadline=None)
@given(case=mixtures())
def test_each_source_gives_its_epochs_in_order_and_no_row_twice(
    case: dict[str, Any], source: SourceOf
) -> None:
    sources = sources_of(case, source)
    schedule = mixture_of(case, sources)
    batches = steps_in(schedule)
    rows = [row for step in shown(batches) for row in step]
    assert len(rows) == len(batches) * case["rows"]
    for number, (each, fills) in enumerate(zip(sources, case["fills"], strict=True)):
        order = Order(steps_of(each.plan), seed_of(number, case["seed"]), case["shuffle"])
        whole = [
            (sequence, epoch)
            for epoch in range(case["epochs"][number])
            for sequence in order(epoch, np.arange(len(fills))).tolist()
        ]
        given_rows = [(sequence, epoch) for at, sequence, epoch in rows if at == number]
        assert given_rows == whole[: len(given_rows)]
        tokens = [fills[sequence] for sequence, _ in given_rows]
        assert not tokens or sum(tokens[:-1]) < (case["tokens"][number] or 10**9)
        report = schedule.report()[number]
        assert (report.rows, report.tokens) == (len(tokens), sum(tokens))
        assert report.epochs == len(given_rows) / len(fills)


@settings(max_examples=60, deadline=None)
@given(case=mixtures())
def test_a_mixture_that_is_resumed_at_any_step_goes_on_the_same(
    case: dict[str, Any], source: SourceOf
) -> None:
    sources = sources_of(case, source)
    running = mixture_of(case, sources)
    expected = shown(steps_in(running))
    for step in range(len(expected) + 1):
        progress = through_json(running.progress(step))
        resumed = mixture_of(case, sources)
        resumed.resume(step, progress)
        assert shown(map(resumed.batch, range(step, len(expected) + 1))) == [
            *expected[step:],
            None,
        ]
        if step < len(expected):
            assert shown([running.batch(step)]) == [expected[step]]


@settings(max_examples=30, deadline=None)
@given(case=mixtures(), data=st.data())
def test_steps_can_be_asked_for_in_any_order(
    case: dict[str, Any], data: st.DataObject, source: SourceOf
) -> None:
    sources = sources_of(case, source)
    expected = [*shown(steps_in(mixture_of(case, sources))), None]
    schedule = mixture_of(case, sources)
    for step in data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=8)):
        assert shown([schedule.batch(step)]) == [expected[step]]


# What it costs to get somewhere.


@pytest.fixture
def advances(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that mixtures were advanced from, one after another."""
    steps: list[int] = []
    advance = MixtureSchedule._advance

    def counted(schedule: MixtureSchedule) -> GlobalBatch | None:
        steps.append(schedule._progress.step)
        return advance(schedule)

    monkeypatch.setattr(MixtureSchedule, "_advance", counted)
    return steps


def endless(source: SourceOf) -> list[MixtureSource]:
    return [source([ROW, 3] * 9, epochs=None), source([5] * 9, share=0.5, epochs=None)]


def test_batches_taken_a_few_at_a_time_advance_a_mixture_once_a_step(
    advances: list[int], source: SourceOf
) -> None:
    batches = mix_batches(endless(source), batch_size=2)
    for _ in range(10):
        assert len(list(islice(batches, 3))) == 3
        batches.state_dict()
    assert advances == list(range(30))


@pytest.mark.parametrize("rows", [1, 3, 4])
@pytest.mark.parametrize("when_one_ends", ["stop", "go on"])
def test_a_mixture_that_is_over_goes_on_with_more_epochs(
    when_one_ends: Literal["stop", "go on"], rows: int, source: SourceOf
) -> None:
    """As if they had been asked for from the start."""
    once = source([ROW, 3, 5] * 3), source([ROW] * 7, share=0.7)
    options: dict[str, Any] = {"rows": rows, "when_one_ends": when_one_ends}
    running = mixture(*once, **options)
    num_steps = len(steps_in(running))
    progress = through_json(running.progress(num_steps))
    assert progress["step"] == num_steps
    twice = [replace(each, epochs=3) for each in once]
    resumed = mixture(*twice, **options)
    resumed.resume(num_steps, progress)
    found = shown(map(resumed.batch, range(num_steps, num_steps + 4)))
    assert None not in found[:2]
    if when_one_ends == "stop":
        expected = shown(steps_in(mixture(*twice, **options)))
        assert found == expected[num_steps:][:4]
    given_rows = [row for step in found for row in step or []]
    for number, before in enumerate(progress["rows"]):
        of_source = [epoch for at, _, epoch in given_rows if at == number]
        size = len(once[number].plan)
        assert of_source == [(before + more) // size for more in range(len(of_source))]


# States of batches.


@pytest.mark.parametrize(
    "change",
    [
        {"rows": [1]},
        {"lags": [0, 0, 0]},
        {"lags": [0.5, 0.5]},
        {"step": 3},
        {"step": None},
        {"step": -1},
        {"rows": [-1, 3]},
        {"rows": [1 << 62, 0]},
        {"tokens": [-1, 16]},
        {"lags": [1 << 62, 0]},
        {"lags": [-(1 << 62), 0]},
        {"ended": [False, False]},
        {"more": 1},
    ],
)
def test_progress_that_is_none_of_this_mixture_is_refused(
    change: dict[str, Any], source: SourceOf
) -> None:
    schedule = mixture(source([ROW] * 9), source([ROW] * 9))
    with pytest.raises(UserError, match=r"not the state of|belongs to another mixture"):
        schedule.resume(2, {**schedule.progress(2), **change})


@pytest.mark.parametrize("plan", ["best-fit-8", None])
def test_a_plan_that_is_not_open_is_refused(source: SourceOf, plan: Any) -> None:
    error = refused(replace(source([ROW] * 9), plan=plan))
    assert error.what == "a source of a mixture must have an open plan"
    assert error.why == f"got {plan!r}"


# Sources that do not fit.


def refused(*sources: MixtureSource, **options: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        mixture(*sources, **options)
    return caught.value


def test_sources_of_different_tokenizers_are_refused(
    source: SourceOf, tmp_path: Path, datasets: list[Dataset]
) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json", more=["<unused>"])
    other = digits(tmp_path / "other", ["1234567"], tokenizer)
    plan = plan_of(tmp_path / "plan", other, [[(0, 0, ROW)]], sequence_length=ROW)
    error = refused(source([ROW]), MixtureSource(dataset=other, plan=plan))
    assert error.what == "the sources have different tokenizers"
    assert error.where == str(plan.folder)
    hashes = [each.manifest.tokenizer.sha256 for each in (datasets[0], other)]
    assert error.why == f"{hashes[0]} and {hashes[1]}"


def test_rows_of_different_lengths_are_refused(
    source: SourceOf, datasets: list[Dataset], folders: Iterable[Path]
) -> None:
    plan = plan_of(next(iter(folders)), datasets[0], [[(0, 0, 4)]], sequence_length=4)
    error = refused(source([ROW]), MixtureSource(dataset=datasets[0], plan=plan))
    assert error.what == "the sources have rows of different lengths"
    assert error.why == "8 and 4 tokens"


def test_a_plan_without_sequences_is_refused(
    source: SourceOf, datasets: list[Dataset], folders: Iterable[Path]
) -> None:
    plan = plan_of(next(iter(folders)), datasets[0], [], sequence_length=ROW)
    error = refused(source([ROW]), MixtureSource(dataset=datasets[0], plan=plan))
    assert (error.what, error.where) == ("the plan has no sequences", str(plan.folder))


def test_no_sources_and_no_shares_are_refused(source: SourceOf) -> None:
    assert refused().what == "a mixture needs at least one source"
    without = source([ROW], share=0), source([ROW], share=((0, 0.0), (5, 0.0)))
    assert refused(*without).what == "at least one share must be above 0"


@pytest.mark.parametrize(
    "share",
    [
        -1,
        -0.5,
        float("nan"),
        float("inf"),
        1.0001e9,
        3e9,
        ((0, 1.0), (5, -1.0)),
        ((0, float("nan")),),
        ((0, 1.0), (5, 1e10)),
    ],
)
def test_what_is_no_share_is_refused(share: float | Points, source: SourceOf) -> None:
    error = refused(source([ROW], share=1), source([ROW], share=share))
    assert error.what == "a share must be between 0 and 1e+09"
    assert error.why.startswith("got ")


@pytest.mark.parametrize("points", [(), ((5, 1.0), (0, 2.0)), ((3, 1.0), (3, 2.0))])
def test_points_out_of_order_are_refused(points: Points, source: SourceOf) -> None:
    error = refused(source([ROW], share=points))
    assert error.what == "the points of a share must be sorted by step"


def test_a_mixture_has_no_epochs_of_its_own(source: SourceOf) -> None:
    with pytest.raises(UserError, match="epochs cannot be set for a whole mixture"):
        mix_batches([source([ROW])], batch_size=1, epochs=2)


# Sources by name.


def test_a_source_is_opened_by_the_names_of_its_dataset_and_its_plan(tmp_path: Path) -> None:
    dataset = digits(tmp_path, ["1111111"])
    plan = plan_of(dataset.folder / "plans" / "full", dataset, [[(0, 0, 8)]], sequence_length=ROW)
    for folder in (dataset, dataset.folder, str(dataset.folder)):
        found = MixtureSource.of(folder, "full", share=0.5, epochs=None, name="web")
        assert (found.share, found.epochs, found.tokens, found.name) == (0.5, None, None, "web")
        assert found.plan.manifest.plan_id == plan.manifest.plan_id
        assert found.dataset.manifest.dataset_id == dataset.manifest.dataset_id
    with pytest.raises(UserError, match="cannot find the plan"):
        MixtureSource.of(dataset, "empty")

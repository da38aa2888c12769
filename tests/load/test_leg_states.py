"""States of amended runs: at any step, with any names, and edited by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from resume_kit import through_json, write_corpora

import tokenmill
from tokenmill.core.errors import UserError
from tokenmill.load.batches import Batches
from tokenmill.load.opening import open_run
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.load.steps.state import checked_state


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_corpora(tmp_path_factory.mktemp("corpora"))[3]


@pytest.fixture(scope="module")
def source_of(corpora: list[Path]) -> Callable[..., MixtureSource]:
    return lambda letter, **options: MixtureSource.of(
        corpora["abc".index(letter)], "packed", **{"epochs": None, "name": letter, **options}
    )


def mixed(sources: list[MixtureSource], state: dict[str, Any] | None = None) -> Batches:
    batches = tokenmill.mix_batches(sources, global_batch_size=24)
    if state is not None:
        batches.load_state_dict(through_json(state))
    return batches


def trained(batches: Batches, steps: int) -> Batches:
    for _ in range(steps):
        assert batches.advance() is not None
    return batches


def refused(action: Callable[[], object]) -> UserError:
    with pytest.raises(UserError) as error:
        action()
    return error.value


@pytest.mark.parametrize("step", [3, 5, 6])
def test_a_state_of_an_earlier_step_is_the_one_that_was_saved_there(
    step: int, source_of: Callable[..., MixtureSource]
) -> None:
    legs = [[source_of(name) for name in names] for names in ("ab", "bc", "ac")]
    first = trained(mixed(legs[0]), 3)
    second = trained(mixed(legs[1], tokenmill.amend(first.state_dict(), sources=legs[1])), 3)
    third = trained(mixed(legs[2], tokenmill.amend(second.state_dict(), sources=legs[2])), 3)
    saved = second.state_dict(step)
    if step == 6:  # the first step of the third leg
        saved = tokenmill.amend(saved, sources=legs[2])
    again = third.state_dict(step)
    assert again["legs"][-1]["given"] == saved["legs"][-1]["given"]
    assert tokenmill.provenance(again).amount == tokenmill.provenance(saved).amount
    assert tokenmill.provenance(again).amount.tokens == sum(
        part.length for each in range(step) for part in third.explain(each)
    )
    found, expected = (
        mixed(legs[0], tokenmill.amend(state, sources=legs[0])) for state in (again, saved)
    )
    assert found.digest(step + 1) == expected.digest(step + 1)


def test_shares_that_are_set_before_the_first_step_hold(
    source_of: Callable[..., MixtureSource],
) -> None:
    sources = [source_of("a"), source_of("b")]
    batches = mixed(sources)
    batches.set_shares({"a": 5.0})
    state = trained(batches, 2).state_dict()
    again = mixed(sources, state)
    assert [again.digest(step) for step in range(4)] == [batches.digest(step) for step in range(4)]


def test_sources_without_names_are_named_by_their_numbers(
    corpora: list[Path], source_of: Callable[..., MixtureSource]
) -> None:
    sources = [source_of(each, name="") for each in "ab"]
    state = tokenmill.amend(mixed([source_of("a")]).state_dict(1), sources=sources)
    shared = tokenmill.amend(state, shares={"1": 3.0})
    assert shared["legs"][-1]["sources"] == [0, 1]
    assert shared["order"]["shares"] == [1.0, 3.0]
    for each in state["sources"]:
        each["name"] = "same"
    assert refused(lambda: tokenmill.amend(state, shares={"same": 3.0})).what == (
        "two sources have the same name"
    )


def test_a_share_of_one_point_can_be_resumed(source_of: Callable[..., MixtureSource]) -> None:
    sources = [source_of("a", share=((5, 0.5),)), source_of("b")]
    state = tokenmill.amend(mixed([source_of("a")]).state_dict(5), sources=sources)
    batches = trained(mixed(sources, state), 2)
    assert mixed(sources, batches.state_dict()).digest(8) == batches.digest(8)


def test_a_ramp_of_an_amendment_is_one_that_a_loader_takes(corpora: list[Path]) -> None:
    dataset = tokenmill.open(corpora[0])
    state = dataset.batches("packed", global_batch_size=24, epochs=None).state_dict(5)
    error = refused(lambda: tokenmill.amend(state, global_batch_size=((5, 8), (7, 16))))
    assert error.hint == "the first point must be at step 0, also if the run is amended later"
    ramp = ((0, 8), (7, 16))
    batches = dataset.batches("packed", global_batch_size=ramp, epochs=None)
    batches.load_state_dict(through_json(tokenmill.amend(state, global_batch_size=ramp)))
    assert [len(trained(batches, 0).batch(step)["input_ids"]) for step in range(4, 9)] == [
        24, 8, 8, 16, 16,
    ]  # fmt: skip


def test_a_source_that_gave_nothing_is_in_no_provenance(corpora: list[Path]) -> None:
    dataset = tokenmill.open(corpora[0])
    state = dataset.batches("packed", global_batch_size=24).state_dict()
    state = tokenmill.amend(state, plan="one piece a row")
    batches = dataset.batches("one piece a row", global_batch_size=24)
    batches.load_state_dict(through_json(state))
    found = tokenmill.provenance(trained(batches, 1).state_dict())
    assert [each.plan_name for each in found.sources] == ["one piece a row"]
    assert found.amount.tokens == sum(part.length for part in batches.explain(0))


def test_options_without_an_effect_are_refused(
    corpora: list[Path], source_of: Callable[..., MixtureSource]
) -> None:
    alone = tokenmill.open(corpora[0]).batches("packed", global_batch_size=24).state_dict(1)
    amend = tokenmill.amend
    cases = {
        "the dataset has no plan": lambda: amend(alone, dataset=corpora[1], global_batch_size=8),
        "when_one_ends is an option of mixtures": lambda: amend(alone, when_one_ends="go on"),
    }
    assert {what: refused(call).what for what, call in cases.items()} == {w: w for w in cases}


def test_epochs_may_be_any_number(source_of: Callable[..., MixtureSource]) -> None:
    many = mixed([source_of("a", epochs=10**18), source_of("b", tokens=10**19)])
    endless = mixed([source_of("a"), source_of("b")])
    assert many.digest(20) == endless.digest(20)


ODD_VALUES = [None, -1, 1.5, "x", [], [[]], [[[]]], {}, [1], [[5]], [[1, 2]], [None], ["x"]]


def places_in(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = enumerate(value) if isinstance(value, list) else dict.items(value)
    found = []
    for name, each in items:
        found.append((*place, name))
        if isinstance(each, list | dict):
            found += places_in(each, (*place, name))
    return found


def test_a_state_edited_by_hand_is_refused_or_works(
    corpora: list[Path], source_of: Callable[..., MixtureSource]
) -> None:
    sources = [source_of("a", share=2.0), source_of("b")]
    before = [source_of("a"), source_of("b")]
    state = tokenmill.amend(trained(mixed(before), 2).state_dict(), shares={"a": 2.0})
    dataset = tokenmill.open(corpora[0])
    alone = dataset.batches("buckets", global_batch_size=4, epochs=None)
    states = [
        trained(mixed(sources, state), 1).state_dict(),
        tokenmill.amend(alone.state_dict(3), global_batch_size=8),
    ]
    for whole in states:
        for place in places_in(whole):
            for value in ODD_VALUES:
                damaged = through_json(whole)
                inner = damaged
                for name in place[:-1]:
                    inner = inner[name]
                inner[place[-1]] = value
                for action in (
                    lambda: tokenmill.amend(damaged, global_batch_size=48),  # noqa: B023
                    lambda: open_run(checked_state(damaged)).digest(0),  # noqa: B023
                    lambda: tokenmill.provenance(damaged),  # noqa: B023
                ):
                    with suppress(UserError):
                        action()


def test_a_state_that_is_refused_changes_nothing(source_of: Callable[..., MixtureSource]) -> None:
    sources = [source_of("a", share=2.0), source_of("b")]
    first = trained(mixed([source_of("a"), source_of("b")]), 2).state_dict()
    batches = trained(mixed(sources, tokenmill.amend(first, shares={"a": 2.0})), 1)
    state = batches.state_dict()
    damaged = through_json(state)
    damaged["progress"]["rows"] = [1]
    assert refused(lambda: batches.load_state_dict(damaged)).what == (
        "the state belongs to another mixture"
    )
    assert batches.state_dict() == state
    fresh = mixed(sources)
    own = fresh.state_dict()
    assert refused(lambda: fresh.load_state_dict(damaged))
    assert fresh.state_dict() == own

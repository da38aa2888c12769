"""What an epoch has not given yet: every token once, in the rest of any plan and order."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st
from loading_kit import all_batches

import rest_kit as kit
import tokenmill
from conftest import random_trials
from packing_kit import reseal_plan
from tokenmill import Dataset, MixtureSource
from tokenmill.core.errors import OutputConflictError, TokenmillError, UserError, VerificationError
from tokenmill.core.values import counted
from tokenmill.load.steps.curriculum import Curriculum
from tokenmill.packing import planning
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import STRATEGIES, contradictions
from tokenmill.reports.plans import check_plan
from view_kit import view_of

NAMES = [name for name in STRATEGIES if name != "optimal"]
POLICIES = (
    *("split", "split-at-boundary", "sliding-window"),
    *("keep-start", "keep-end", "keep-both-ends", "drop"),
)
LENGTHS = [[3, 30, 9, 17, 2, 12], [41, 5, 5, 8, 26], [7], [2, 3, 4, 19, 33, 11, 6]]
TOO_FEW = "not enough rows for one global batch"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return kit.corpus(tmp_path_factory.mktemp("rest") / "data", LENGTHS)


@pytest.fixture(autouse=True, scope="module")
def _few_sequences_at_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokenmill.packing.rest.SEQUENCES_AT_ONCE", 3)
        yield


@pytest.fixture
def copied(dataset: Dataset, tmp_path: Path) -> Dataset:
    """The same dataset, in which a test may make plans by name."""
    without_plans = shutil.ignore_patterns("plans")
    return Dataset(shutil.copytree(dataset.folder, tmp_path / "corpus", ignore=without_plans))


def options(*, loses: bool = True) -> st.SearchStrategy[dict[str, Any]]:
    made = st.fixed_dictionaries(
        {
            "sequence_length": st.sampled_from([8, 16, 32]),
            "packing": st.sampled_from(NAMES),
            "long_documents": st.sampled_from(POLICIES if loses else POLICIES[:3]),
            "at_cuts": st.sampled_from(["nothing", "bos", "eos", "bos-and-eos"]),
            "window_sequences": st.sampled_from([2, 1000]),
            "ranks": st.sampled_from([1, 2]),
            "smallest_bucket": st.sampled_from([2, 4]),
            "separate_by": st.sampled_from([None, "kind"]),
        }
    )
    return made.map(_valid)


def _valid(drawn: dict[str, Any]) -> dict[str, Any]:
    """Drawn options without those that others rule out."""
    if drawn["long_documents"] == "sliding-window":
        drawn["overlap"] = 3
    if drawn["packing"] != "length-buckets":
        del drawn["smallest_bucket"]
    if drawn["packing"] == "balanced":
        drawn["separate_by"] = None
    if STRATEGIES[drawn["packing"]].cuts_documents or drawn["long_documents"] == "keep-both-ends":
        drawn["at_cuts"] = "nothing"
    return drawn


def is_possible(drawn: dict[str, Any]) -> bool:
    return not list(contradictions(PackOptions(**drawn)))


@st.composite
def runs(draw: st.DrawFn) -> dict[str, Any]:
    """How a plan is trained on."""
    return {
        "seed": draw(st.integers(0, 3)),
        "shuffle": draw(st.sampled_from(["global", "blocks", "none"])),
        "epochs": draw(st.integers(1, 3)),
    }


def open_batches(dataset: Dataset, plan: Any, run: dict[str, Any], rows: int) -> Any:
    """Batches of so many groups of rows, or of tokens where rows have several lengths."""
    lengths = plan.rows.row_lengths
    size = {"global_batch_size": rows * plan.rows.group_size}
    if len(lengths) > 1:
        size = {"tokens_per_batch": rows * lengths[-1]}
    return dataset.batches(plan, **size, **run)


def unless(refusal: str, action: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What a call returns, or None if it is refused for this reason."""
    try:
        return action(*arguments, **options)
    except UserError as error:
        if error.what != refusal:
            raise
        return None


def pack_as(dataset: Dataset, name: str, **made: Any) -> Any:
    """A plan in place of any other with this name."""
    shutil.rmtree(dataset.folder / "plans" / name, ignore_errors=True)
    return tokenmill.pack(dataset, name=name, **made)


def check_rest(report: Any, left: kit.Tokens, chosen: kit.Tokens) -> None:
    """A plan holds every token that is left once, or says that it lost it."""
    found = kit.planned(report.plan)
    if report.plan.rows.overlap:  # where a range begins in the first tokens of its document
        found = Counter(dict.fromkeys(found, 1)) & left
    lost = sum(report.figures.lost_tokens.values())
    assert not found - left
    assert sum((left - found).values()) == lost
    assert report.figures.tokens == sum(left.values())
    assert report.figures.left_out_tokens.get("given already", 0) == sum((chosen - left).values())
    segments = int(np.sum(report.plan.lengths, dtype=np.int64))
    assert segments - report.figures.repeated_tokens + lost == sum(left.values())


@random_trials(
    50, 3000, first=options(), then=options(), run=runs(), rows=st.integers(1, 3), data=st.data()
)
def test_what_is_given_and_the_rest_are_all_tokens_once(
    dataset: Dataset,
    first: dict[str, Any],
    then: dict[str, Any],
    run: dict[str, Any],
    rows: int,
    data: st.DataObject,
) -> None:
    assume(is_possible(first) and is_possible(then))
    planned = unless("nothing to pack", pack_as, dataset, "first", **first)
    batches = planned and unless(TOO_FEW, open_batches, dataset, planned.plan, run, rows)
    if batches is None:
        return
    step = data.draw(st.integers(0, len(batches)), label="step")
    state = kit.state_at(batches, step)
    rest = unless("nothing to pack", pack_as, dataset, "then", rest_of=state, **then)
    if rest is None:
        return
    epoch = rest.plan.manifest.options["rest_of"]["epoch"]
    chosen = kit.all_tokens(dataset)
    done = kit.given(batches, planned.plan, step, epoch)
    check_rest(rest, chosen - done, chosen)
    assert kit.is_whole(rest, dataset)
    check_plan(dataset, rest.plan, lambda stage, done, total: None)
    # Once more: a part of the rest, and what that leaves.
    batches = unless(TOO_FEW, open_batches, dataset, rest.plan, {"epochs": None, "seed": 5}, 1)
    if batches is None:
        return
    step = data.draw(st.integers(0, 6), label="step in the rest")
    state = kit.state_at(batches, step)
    last = unless("nothing to pack", pack_as, dataset, "last", rest_of=state, sequence_length=64)
    if last is None:
        return
    epoch = last.plan.manifest.options["rest_of"]["epoch"]
    done_twice = Counter(dict.fromkeys(done + kit.given(batches, rest.plan, step, epoch), 1))
    check_rest(last, chosen - done_twice, chosen)


def half_given(dataset: Dataset, step: int = 4, **more: Any) -> dict[str, Any]:
    """The state after 4 of 14 steps or so, of a plan with sequences of 16 tokens."""
    packed = {"sequence_length": 16, **more}
    tokenmill.pack(dataset, name="first", **packed)
    return kit.state_at(dataset.batches("first", global_batch_size=1, seed=1), step)


def test_rows_of_a_rest_hold_the_right_tokens_with_tokens_at_all_cuts(copied: Dataset) -> None:
    """A range that begins inside its document begins with a BOS, one that ends inside ends so."""
    state = half_given(copied, at_cuts="bos-and-eos")
    plan = tokenmill.pack(copied, sequence_length=24, rest_of=state, at_cuts="bos-and-eos").plan
    assert plan.folder.name == "best-fit-24-rest"
    rows = [
        row
        for batch in all_batches(copied.batches("best-fit-24-rest", batch_size=1, shuffle="none"))
        for row in batch["input_ids"].tolist()
    ]
    documents = [
        shard.document(index).tolist()
        for shard in copied.shards
        for index in range(shard.num_documents)
    ]
    expected, inner = [], 0
    for sequence in range(len(plan)):
        row = []
        for document, start, length in plan.segments(sequence):
            ids = documents[document]
            row += [0] * (start > 0) + ids[start : start + length]
            row += [0] * (start + length < len(ids))
            inner += start > 0
        assert len(row) <= 24
        expected.append(row + [10] * (24 - len(row)))
    assert rows == expected
    assert inner


def test_two_ranges_of_a_document_in_one_row_are_not_joined_into_one_text(
    copied: Dataset, tmp_path: Path
) -> None:
    """keep-both-ends joins the two parts that it keeps of a document, and nothing else."""
    plan = tokenmill.pack(copied, sequence_length=16, name="first").plan
    (middle,) = [row for row in range(len(plan)) if (6, 16, 16) in plan.segments(row)]
    seeds = (copied.batches("first", global_batch_size=1, seed=seed) for seed in range(1000))
    batches = next(each for each in seeds if each.global_batch(0).sequences.tolist() == [middle])
    state = kit.state_at(batches, 1)
    made: dict[str, Any] = {"sequence_length": 128, "long_documents": "keep-both-ends"}
    plan = tokenmill.pack(copied, folder=tmp_path / "p", rest_of=state, **made).plan
    in_rows = [[document for document, _, _ in plan.segments(row)] for row in range(len(plan))]
    assert any(len(row) > len(set(row)) for row in in_rows)
    (batch,) = all_batches(copied.batches(tmp_path / "p", batch_size=len(plan), shuffle="none"))
    for row, positions in enumerate(batch["position_ids"].tolist()):
        lengths = [length for _, _, length in plan.segments(row)]
        assert positions[: sum(lengths)] == [place for each in lengths for place in range(each)]


def test_a_document_that_is_given_twice_has_one_more_copy_of_what_was_given_once(
    copied: Dataset,
) -> None:
    twice: dict[str, Any] = {"weight_by": "kind", "weight": ["code=2", "text=1"]}
    state = half_given(copied, **twice)
    plan = tokenmill.open_plan(copied, "first")
    batches = copied.batches("first", global_batch_size=1, seed=1)
    done = kit.given(batches, plan, 4, 0)
    report = tokenmill.pack(copied, sequence_length=32, rest_of=state, **twice)
    every = kit.planned(plan)
    assert max(every.values()) == 2
    assert kit.planned(report.plan) == every - done
    # Without weights, a token that was given once is given.
    report = tokenmill.pack(copied, sequence_length=64, rest_of=state)
    assert kit.planned(report.plan) == kit.all_tokens(copied) - done


def test_a_subset_of_the_options_is_taken_from_the_rest(tmp_path: Path) -> None:
    built = kit.corpus(tmp_path / "data", LENGTHS, validation=0.3)
    state = half_given(built, subset="all")
    reports = [
        tokenmill.pack(built, sequence_length=16, subset=subset, rest_of=state)
        for subset in ("train", "validation", "all")
    ]
    parts = [kit.planned(report.plan) for report in reports]
    assert parts[0] + parts[1] == parts[2]
    assert all(kit.is_whole(report, built) for report in reports)
    assert reports[0].figures.left_out_tokens["other subset"] == sum(parts[1].values())


# Views.


def test_a_view_takes_documents_out_of_the_rest(copied: Dataset, tmp_path: Path) -> None:
    state = half_given(copied, 10)
    batches = copied.batches("first", global_batch_size=1, seed=1)
    done = kit.given(batches, tokenmill.open_plan(copied, "first"), 10, 0)
    kept = [number for number in range(19) if number % 4]
    view = view_of(tmp_path / "view", [copied], kept)
    report = tokenmill.pack(view, sequence_length=32, rest_of=state)
    left = kit.all_tokens(copied, kept) - done
    out = kit.all_tokens(copied, [0, 4, 8, 12, 16]) - done
    assert kit.planned(report.plan) == left
    gone = {number for number in (0, 4, 8, 12, 16) if (number, 0) not in out}
    assert gone  # all of some was given: no token is left to take out
    assert report.figures.left_out_tokens == {
        "given already": sum(done.values()),
        "taken out": sum(out.values()),
    }
    assert report.figures.left_out_documents == {
        "given already": len({document for document, _ in done}),
        "taken out": len({document for document, _ in out}),
    }
    assert kit.is_whole(report, view)
    # A rest of this rest, in which one document more is taken out: its first plan is the dataset's.
    state = kit.state_at(view.batches("best-fit-32-rest", global_batch_size=1), 2)
    done += kit.given(view.batches("best-fit-32-rest", global_batch_size=1), report.plan, 2, 0)
    smaller = view_of(tmp_path / "smaller", [view], [number for number in kept if number != 6])
    moved = view.folder.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="a dataset of the state is missing") as caught:
        tokenmill.pack(smaller, sequence_length=32, rest_of=state)
    assert f"needs dataset {view.manifest.dataset_id}, which was {view.folder}" in caught.value.why
    assert "--rest-dataset" in caught.value.hint
    last = tokenmill.pack(smaller, sequence_length=32, rest_of=state, rest_datasets=[moved])
    chosen = kit.all_tokens(copied, [number for number in kept if number != 6])
    assert kit.planned(last.plan) == chosen - done
    assert kit.is_whole(last, smaller)


def test_a_merge_adds_whole_documents_and_keeps_what_was_given(
    copied: Dataset, tmp_path: Path
) -> None:
    state = half_given(copied)
    done = kit.given(
        copied.batches("first", global_batch_size=1, seed=1),
        tokenmill.open_plan(copied, "first"), 4, 0,
    )  # fmt: skip
    more = kit.corpus(tmp_path / "more", [[9, 9, 30]])
    merged = tokenmill.select([more, copied], tmp_path / "merged")
    report = tokenmill.pack(merged, sequence_length=16, rest_of=state)
    moved: kit.Tokens = Counter({(number + 3, place): n for (number, place), n in done.items()})
    assert kit.planned(report.plan) == kit.all_tokens(merged) - moved
    assert kit.is_whole(report, merged)
    # A run on the merged data goes back to no dataset that lacks some of it.
    tokenmill.pack(merged, sequence_length=16, name="all")
    state = kit.state_at(merged.batches("all", batch_size=1), 1)
    with pytest.raises(UserError, match="lacks documents of the state's plan"):
        tokenmill.pack(copied, sequence_length=8, rest_of=state)


# Mixtures.


def test_of_a_mixture_it_is_the_rest_of_one_source(copied: Dataset, tmp_path: Path) -> None:
    other = kit.corpus(tmp_path / "other", [[9, 9, 30, 14], [22, 5]])
    for each, name in ((copied, "a"), (other, "b"), (copied, "c")):
        tokenmill.pack(each, sequence_length=16, name=name)
    sources = [MixtureSource.of(each, name) for each, name in ((copied, "a"), (other, "b"))]
    batches = tokenmill.mix_batches(sources, global_batch_size=2, seed=3)
    state = kit.state_at(batches, 3)
    for number, source in enumerate(sources):
        report = tokenmill.pack(source.dataset, sequence_length=32, rest_of=state)
        done: kit.Tokens = Counter()
        for step in range(3):
            whole = batches.global_batch(step)
            assert whole is not None
            own = whole.sequences[whole.sources == number].tolist()
            done += kit.planned(source.plan, iter(own))
        assert done
        assert kit.planned(report.plan) == kit.all_tokens(source.dataset) - done
    same = [MixtureSource.of(copied, name) for name in ("a", "c")]
    state = kit.state_at(tokenmill.mix_batches(same, global_batch_size=2), 3)
    with pytest.raises(UserError, match="which source is meant") as caught:
        tokenmill.pack(copied, sequence_length=64, rest_of=state)
    assert caught.value.why == "sources of this dataset are 0: 0 (plan a), 1: 1 (plan c)"
    for number in (0, "c"):
        made = {"sequence_length": 64, "rest_of": state, "source": number, "name": f"rest-{number}"}
        of = tokenmill.pack(copied, **made).plan.manifest.options["rest_of"]
        assert (of["name"], of["seed"] == 0) == (("a", True) if number == 0 else ("c", False))
    with pytest.raises(UserError, match="the run has no such source"):
        tokenmill.pack(copied, sequence_length=64, rest_of=state, source="d")


# What the state says.


def test_at_the_end_of_an_epoch_the_rest_is_a_whole_one(copied: Dataset) -> None:
    tokenmill.pack(copied, sequence_length=16, name="first")
    batches = copied.batches("first", global_batch_size=1, epochs=3)
    state = kit.state_at(batches, len(batches) * 2 // 3)
    report = tokenmill.pack(copied, sequence_length=32, rest_of=state)
    assert kit.planned(report.plan) == kit.all_tokens(copied)
    of = report.plan.manifest.options["rest_of"]
    assert (of["epoch"], of["rows"]) == (2, [0])
    assert report.figures.left_out_tokens == {}


def test_what_is_of_another_epoch_is_named(
    copied: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows of several lengths: a batch with the end of an epoch can come late in the next one."""
    plan = tokenmill.pack(
        copied, sequence_length=16, packing="length-buckets", smallest_bucket=4, name="first"
    ).plan
    batches = copied.batches("first", tokens_per_batch=32, epochs=4)
    wholes = [batches.global_batch(step) for step in range(len(batches))]
    told = 0
    for step in range(len(batches)):
        caplog.clear()
        report = tokenmill.pack(
            copied, sequence_length=32, rest_of=kit.state_at(batches, step), name=f"rest-{step}"
        )
        epoch = report.plan.manifest.options["rest_of"]["epoch"]
        due = sum(int((whole.epochs < epoch).sum()) for whole in wholes[step:] if whole)
        ahead = sum(int((whole.epochs > epoch).sum()) for whole in wholes[:step] if whole)
        said = [each for each in caplog.messages if "were not given yet" in each]
        if due or ahead:
            told += 1
            assert f"{counted(due, 'sequence')} of epoch {epoch - 1} were not given" in said[0]
            assert f"and {counted(ahead, 'sequence')} of epoch {epoch + 1} were" in said[0]
        assert len(said) == bool(due or ahead)
        done = kit.given(batches, plan, step, epoch)
        assert kit.planned(report.plan) == kit.all_tokens(copied) - done
    assert told


def test_a_run_with_legs_has_given_what_all_of_them_gave(copied: Dataset) -> None:
    """First with batches of 1, then of 2 rows; then on with a rest, and the rest of that."""
    state = half_given(copied)
    state = tokenmill.amend(state, global_batch_size=2)
    assert kit.planned(tokenmill.pack(copied, sequence_length=64, rest_of=state).plan)
    batches = copied.batches("first", global_batch_size=2, seed=1)
    batches.load_state_dict(state)
    plan = tokenmill.open_plan(copied, "first")
    done = kit.given(batches, plan, 7, 0)
    state = kit.state_at(batches, 7)
    report = tokenmill.pack(copied, sequence_length=32, rest_of=state)
    assert report.plan.manifest.options["rest_of"]["rows"] == [4 * 1 + 3 * 2]
    assert kit.planned(report.plan) == kit.all_tokens(copied) - done
    state = tokenmill.amend(state, plan="best-fit-32-rest")
    batches = copied.batches("best-fit-32-rest", global_batch_size=2, seed=1)
    batches.load_state_dict(state)
    later = kit.state_at(batches, 8)
    whole = batches.global_batch(7)
    assert whole is not None
    done += kit.planned(report.plan, iter(whole.sequences.tolist()))
    last = tokenmill.pack(copied, sequence_length=16, rest_of=later)
    assert kit.planned(last.plan) == kit.all_tokens(copied) - done


def test_the_same_rest_again_is_there_already_and_another_one_is_a_conflict(
    copied: Dataset,
) -> None:
    state = half_given(copied)
    first = tokenmill.pack(copied, sequence_length=32, rest_of=state)
    again = tokenmill.pack(copied, sequence_length=32, rest_of=state)
    assert (first.already_there, again.already_there) == (False, True)
    assert again.figures == first.figures
    whole = tokenmill.pack(copied, sequence_length=32)
    assert whole.plan.folder.name == "best-fit-32"
    later = kit.state_at(copied.batches("first", global_batch_size=1, seed=1), 5)
    with pytest.raises(TokenmillError, match="holds another plan"):
        tokenmill.pack(copied, sequence_length=32, rest_of=later)


def test_strategies_are_compared_on_the_rest(copied: Dataset) -> None:
    state = half_given(copied)
    rows = tokenmill.compare_plans(copied, sequence_length=32, smallest_bucket=4, rest_of=state)
    report = tokenmill.pack(copied, sequence_length=32, rest_of=state)
    figures = {row.packing: row.figures for row in rows if row.figures is not None}
    assert set(figures) == set(STRATEGIES)
    assert figures["best-fit"] == report.figures
    assert {each.tokens for each in figures.values()} == {report.figures.tokens}


def changed(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda state: {**state, **changes}


def with_source(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda state: {**state, "sources": [{**state["sources"][0], "location": "", **changes}]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (with_source(dataset="d"), "lacks documents|is missing"),
        (with_source(plan="p"), "the dataset lacks the plan of the state"),
        (changed(sources=[]), "not the state of a loader"),
        (changed(step=-1), "not the state of a loader"),
        (changed(step="4"), "not the state of a loader"),
        (changed(more=1), "not the state of a loader"),
        (changed(order={"shuffle": "wild"}), "not the state of a loader"),
        (changed(progress={}), "does not say what was given"),
        (changed(progress={"epoch": 0, "rows": [1, 2]}), "not the state of a loader"),
        (changed(progress={"epoch": 0, "rows": [-1]}), "not the state of a loader"),
    ],
)
def test_states_that_say_nothing_are_refused_and_no_plan_is_left(
    change: Callable[[dict[str, Any]], dict[str, Any]], said: str, copied: Dataset
) -> None:
    state = half_given(copied)
    with pytest.raises(UserError, match=said):
        tokenmill.pack(copied, sequence_length=32, rest_of=change(state))
    assert copied.plans == ["first"]


def test_a_state_of_another_dataset_is_refused(copied: Dataset, tmp_path: Path) -> None:
    other = kit.corpus(tmp_path / "other", [[9, 9, 30]])
    with pytest.raises(UserError, match="lacks documents of the state's plan") as caught:
        tokenmill.pack(other, sequence_length=32, rest_of=half_given(copied))
    assert other.manifest.dataset_id in caught.value.where
    assert copied.manifest.dataset_id in caught.value.why


def test_the_state_of_a_curriculum_is_refused(copied: Dataset) -> None:
    plan = tokenmill.pack(copied, sequence_length=16, name="first").plan
    curriculum = Curriculum.of_plan(plan, copied, 2)
    state = kit.state_at(copied.batches("first", curriculum=curriculum), 1)
    with pytest.raises(UserError, match="epoch of a curriculum"):
        tokenmill.pack(copied, sequence_length=32, rest_of=state)


def test_nothing_left_is_nothing_to_pack(copied: Dataset, tmp_path: Path) -> None:
    tokenmill.pack(copied, sequence_length=64, name="first")
    batches = copied.batches("first", global_batch_size=1, shuffle="none")
    state = kit.state_at(batches, len(batches) - 1)
    document = tokenmill.open_plan(copied, "first").segments(0)[0][0]
    view = view_of(tmp_path / "view", [copied], [document])
    with pytest.raises(UserError, match="nothing to pack") as caught:
        tokenmill.pack(view, sequence_length=32, rest_of=state)
    assert "documents left out: given already" in caught.value.why
    assert "documents left out: taken out" in caught.value.why


def test_a_rest_whose_plan_is_gone_names_it(copied: Dataset) -> None:
    state = half_given(copied)
    first = tokenmill.open_plan(copied, "first")
    tokenmill.pack(copied, sequence_length=32, rest_of=state)
    later = kit.state_at(copied.batches("best-fit-32-rest", batch_size=1), 1)
    shutil.rmtree(first.folder)
    with pytest.raises(UserError, match="'first', of which 'best-fit-32-rest' is") as caught:
        tokenmill.pack(copied, sequence_length=64, rest_of=later)
    assert first.manifest.plan_id in caught.value.why


def test_a_file_holds_the_state_as_json(copied: Dataset, tmp_path: Path) -> None:
    state, path = half_given(copied), tmp_path / "state.json"
    path.write_text(json.dumps(state))
    made = tokenmill.pack(copied, sequence_length=32, rest_of=path)
    again = tokenmill.pack(copied, sequence_length=32, rest_of=state)
    assert again.already_there
    assert made.plan.manifest.plan_id == again.plan.manifest.plan_id
    for content in ("[]", "{", '{"step": 4}'):
        path.write_text(content)
        with pytest.raises(UserError, match=r"not the state of a loader|the state is no JSON"):
            tokenmill.pack(copied, sequence_length=32, rest_of=path)
    with pytest.raises(UserError, match="nowhere"):
        tokenmill.pack(copied, sequence_length=32, rest_of=tmp_path / "nowhere")


def test_what_is_left_of_documents_is_split_at_its_own_boundaries(
    copied: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A boundary follows each 5, and the slack is a whole sequence."""
    state = half_given(copied)
    ends = np.arange(11) == 5
    nowhere = np.zeros_like(ends)
    monkeypatch.setattr(planning, "boundary_tables", lambda *_: (ends, nowhere, nowhere))
    plan = tokenmill.pack(
        copied,
        sequence_length=6,
        rest_of=state,
        long_documents="split-at-boundary",
        slack=6,
    ).plan
    left, cuts = kit.planned(plan), 0
    for row in range(len(plan)):
        for document, start, length in plan.segments(row):
            shard, index = copied.locate(document)
            ids = shard.document(index)[start : start + length].tolist()
            if (document, start + length) in left:
                cuts += ids[-1] == 5
                assert ids[-1] == 5 or (len(ids) == 6 and 5 not in ids)
    assert cuts


def test_a_plan_with_a_damaged_rest_is_damaged(copied: Dataset) -> None:
    state = half_given(copied)
    plan = tokenmill.pack(copied, sequence_length=32, rest_of=state).plan
    later = kit.state_at(copied.batches(plan, batch_size=1), 1)
    options = plan.manifest.options
    for change in (
        {"epoch": "0"},
        {"rows": [-1]},
        {"rows": [1000]},
        {"rows": []},
        {"shuffle": "wild"},
        {"more": 1},
    ):
        reseal_plan(plan.folder, options={**options, "rest_of": options["rest_of"] | change})
        with pytest.raises(VerificationError, match="a plan is damaged"):
            tokenmill.pack(copied, sequence_length=64, rest_of=later)


def test_the_plan_of_a_rest_is_not_replaced(copied: Dataset) -> None:
    """The state of a run may name it."""
    tokenmill.pack(copied, sequence_length=16, name="first")
    batches = copied.batches("first", global_batch_size=4)
    for step in (1, 2):
        options = {"rest_of": kit.state_at(batches, step), "sequence_length": 32, "name": "rest"}
        if step == 1:
            tokenmill.pack(copied, **options)
            continue
        with pytest.raises(OutputConflictError) as error:
            tokenmill.pack(copied, **options)
        assert error.value.why == "it is the rest of another step"
        assert error.value.hint == "give the new plan another name: --name"
        with pytest.raises(OutputConflictError, match="the plan of a rest cannot be replaced"):
            tokenmill.pack(copied, overwrite=True, **options)


def test_documents_that_come_back_are_counted(
    copied: Dataset, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    view = view_of(tmp_path / "view", [copied], range(1, copied.num_documents))
    tokenmill.pack(view, sequence_length=16, name="first")
    state = kit.state_at(view.batches("first", global_batch_size=4), 1)
    tokenmill.pack(view, rest_of=state, sequence_length=16, name="left")
    assert not [each for each in caplog.messages if "come back" in each]
    tokenmill.pack(copied, rest_of=state, sequence_length=16, name="all")
    length = copied.shards[0].lengths[0]
    told = [each for each in caplog.messages if "come back" in each]
    assert told == [
        f"1 document with {length} tokens come back: the view that the run trained on, "
        f"{view.location}, had left them out"
    ]

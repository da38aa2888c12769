"""Batches: what a step is, states and what they refuse, damage, open files, dealing to ranks."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import digits, write_tokenizer
from resume_kit import GLOBAL_BATCH, all_bytes, sharded, shown

import tokenmill
from tokenmill import Dataset, MixtureSource
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.load.steps.schedule import deal
from tokenmill.store.layout import HEADER

DigitDataset = Callable[..., Dataset]


@pytest.fixture
def dataset_of(tmp_path: Path) -> DigitDataset:
    """Makes a dataset of some texts of digits, with one plan."""
    numbers = count()

    def make(texts: list[str], tokenizer: Path | None = None, **options: Any) -> Dataset:
        dataset = digits(tmp_path / f"{next(numbers)}", texts, tokenizer)
        tokenmill.pack(dataset, name="only", **options)
        return tokenmill.open(dataset.folder)

    return make


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some hundred sequences in three shards."""
    return sharded(tmp_path_factory.mktemp("alone") / "corpus", per_shard=30).folder


def refused(action: Callable[[], object]) -> UserError:
    with pytest.raises(UserError) as caught:
        action()
    return caught.value


# What a step is.


TEXTS = ["11", "2222", "3", "444", "5555555"]
NEXT_FIT = {"sequence_length": 8, "packing": "next-fit"}


def test_a_batch_of_more_rows_than_there_are_is_refused(dataset_of: DigitDataset) -> None:
    dataset = dataset_of(TEXTS, **NEXT_FIT)
    error = refused(lambda: dataset.batches(global_batch_size=7, epochs=2))
    assert error.what == "not enough rows for one global batch"
    assert error.where.endswith("plans/only")
    assert error.why == "it needs 7 rows of one length, and there are 6 rows in total"
    assert error.hint == "use a smaller batch or more epochs"
    for epochs in (3, None):
        batches = dataset.batches(global_batch_size=7, epochs=epochs)
        assert len(batches.batch(0)["input_ids"]) == 7


def test_a_plan_without_a_whole_group_of_ranks_is_refused_for_any_number_of_epochs(
    dataset_of: DigitDataset,
) -> None:
    dataset = dataset_of(TEXTS, sequence_length=8, packing="balanced", ranks=7)
    assert 0 < len(tokenmill.open_plan(dataset)) < 7
    for epochs in (1, None):
        error = refused(lambda: dataset.batches(global_batch_size=7, epochs=epochs))  # noqa: B023
        assert error.what == "not enough rows for one global batch"
        assert error.why.startswith("it needs 7 rows of one length, and there are ")


def test_a_digest_is_that_of_ids_labels_and_positions_row_by_row(dataset_of: DigitDataset) -> None:
    dataset = dataset_of(TEXTS, **NEXT_FIT)
    batches = dataset.batches(global_batch_size=2, shuffle="none", columns=("num_targets",))
    rows = [
        [1, 1, 0, 2, 2, 2, 2, 0],
        [-100, 1, 0, -100, 2, 2, 2, 0],
        [0, 1, 2, 0, 1, 2, 3, 4],
        [3, 0, 4, 4, 4, 0, 10, 10],
        [-100, 0, -100, 4, 4, 0, -100, -100],
        [0, 1, 0, 1, 2, 3, 0, 1],
    ]
    expected = hashlib.sha256(np.array(rows, "<i8").tobytes()).hexdigest()
    assert batches.digest(0) == expected
    ranks = [
        dataset.batches(batch_size=1, world_size=2, rank=rank, shuffle="none") for rank in (0, 1)
    ]
    assert [each.digest(0) for each in ranks] == [expected] * 2


def test_a_rank_has_its_share_of_the_rows_in_their_order(dataset_of: DigitDataset) -> None:
    texts = ["1111111", "2222222", "33", "44", "5555555", "66", "77", "8888888"]
    dataset = dataset_of(texts, sequence_length=8, packing="next-fit", max_segments=1)
    shares = {
        even: [
            shown(next(iter(dataset.batches(
                global_batch_size=8, shuffle="none", world_size=2, rank=rank, even_attention=even
            ))))
            for rank in (0, 1)
        ]
        for even in (False, True)
    }  # fmt: skip
    assert shares[False] == [
        ["1111111.", "2222222.", "33._____", "44._____"],
        ["5555555.", "66._____", "77._____", "8888888."],
    ]
    assert shares[True] == [
        ["1111111.", "33._____", "5555555.", "66._____"],
        ["2222222.", "44._____", "77._____", "8888888."],
    ]


# Options.


@pytest.mark.parametrize(
    ("options", "what", "why"),
    [
        (
            {"global_batch_size": 24, "batch_size": 2},
            "give exactly one batch size",
            "batch_size=2, global_batch_size=24, tokens_per_batch=None",
        ),
        (
            {},
            "give exactly one batch size",
            "batch_size=None, global_batch_size=None, tokens_per_batch=None",
        ),
        (
            {"batch_size": 1, "rank": 3, "world_size": 3},
            "rank must be between 0 and world_size - 1",
            "got rank=3, world_size=3",
        ),
        (
            {"batch_size": 0},
            "the loader has 1 problem",
            "batch_size: got 0; must be a whole number, at least 1 or a list of pairs, or none",
        ),
        (
            {"batch_size": 1, "columns": ("input_ids", "tokens")},
            "invalid batch option",
            "columns: unknown tokens; choose from input_ids, labels, position_ids, cu_seqlens, "
            "max_seqlen, segment_ids, task_ids, attention_mask, loss_weights, num_targets, "
            "segmentation, cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k, use_cache",
        ),
    ],
)
def test_wrong_options_are_refused_when_opening(
    options: dict[str, Any], what: str, why: str, alone: Path
) -> None:
    error = refused(lambda: tokenmill.open(alone).batches("packed", **options))
    assert (error.what, error.why) == (what, why)


def test_the_plan_is_to_be_named_where_there_are_several(alone: Path, tmp_path: Path) -> None:
    error = refused(lambda: tokenmill.open(alone).batches(batch_size=1))
    assert str(error) == (
        "the dataset has several plans\n"
        f"  where: {alone}\n"
        "  why: they are buckets, one piece a row, packed\n"
        "  next: choose one, for example --plan buckets, or plan='buckets' in Python"
    )
    none = tokenmill.open(digits(tmp_path / "none", ["1"]).folder)
    assert str(refused(lambda: none.batches(batch_size=1))) == (
        "the dataset has no plan\n"
        f"  where: {none.folder}\n"
        "  why: rows are built from a plan\n"
        f"  next: create one: tokenmill pack {none.folder} --sequence-length 4096"
    )
    error = refused(lambda: tokenmill.open(alone).batches("bukets", batch_size=1))
    assert str(error) == (
        "cannot find the plan 'bukets'\n"
        f"  where: {alone / 'plans'}\n"
        "  why: the dataset has buckets, one piece a row, packed\n"
        "  next: did you mean buckets?"
    )


@pytest.mark.parametrize("sources", [1, 2])
def test_ranks_that_cannot_share_the_global_batch_are_refused_when_opening(
    sources: int, alone: Path
) -> None:
    dataset = tokenmill.open(alone)
    plan = tokenmill.open_plan(dataset, "packed")
    options = {"global_batch_size": GLOBAL_BATCH, "rank": 0, "world_size": 5}
    source = MixtureSource(dataset=dataset, plan=plan)
    error = refused(
        lambda: (
            dataset.batches(plan, **options)
            if sources == 1
            else tokenmill.mix_batches([source, source], **options)
        )
    )
    assert error.what == "cannot divide the global batch among the ranks"
    assert error.why == "it has 24 rows, and there are 5 ranks"
    assert error.hint == "use a global batch size that is a multiple of the number of ranks"


# States.


def test_a_state_is_small_and_of_plain_values(alone: Path) -> None:
    dataset = tokenmill.open(alone)
    batches = dataset.batches("packed", global_batch_size=24, seed=2**63, epochs=None)
    num_rows = len(tokenmill.open_plan(dataset, "packed"))
    assert batches.state_dict(step=10**12) == {
        "version": 1,
        "step": 10**12,
        "seed": 2**63,
        "global_batch": {"rows": 24},
        "sources": [
            {
                "dataset": dataset.manifest.dataset_id,
                "plan": tokenmill.open_plan(dataset, "packed").manifest.plan_id,
                "tokenizer": dataset.manifest.tokenizer.sha256,
                "location": str(alone),
                "plan_name": "packed",
                "row_length": 16,
            }
        ],
        "order": {"shuffle": "global"},
        "labels": {
            "labels": "aligned",
            "across_documents": False,
            "without_prefix": 0,
            "overlap_in_loss": None,
            "loss_spans": True,
            "masked_lm": None,
        },
        "progress": {"epoch": 24 * 10**12 // num_rows, "rows": [24 * 10**12]},
        "epochs": [None],
        "ranks": 1,
        "legs": [],
    }
    for step in (0, 1, 10**12):
        state = batches.state_dict(step)
        assert json.loads(json.dumps(state)) == state
        assert len(json.dumps(state)) < 1000


def differences(state: dict[str, Any], batches: tokenmill.Batches) -> list[str]:
    """What a refused state is said to differ in; nothing is taken over from it."""
    before = batches.state_dict()
    error = refused(lambda: batches.load_state_dict(state))
    assert error.what == "the state belongs to another loader"
    assert batches.state_dict() == before
    return [line.strip() for line in error.why.splitlines()]


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({"seed": 8}, ["seed: 7 in the state, 8 here"]),
        ({"shuffle": "blocks"}, ["shuffle: global in the state, blocks here"]),
        ({"global_batch_size": 12}, ["rows of a global batch: 24 in the state, 12 here"]),
        (
            {"global_batch_size": None, "batch_size": 24, "rank": 0, "world_size": 2},
            ["rows of a global batch: 24 in the state, 48 here"],
        ),
        (
            {"global_batch_size": None, "tokens_per_batch": 160, "shuffle": "none", "seed": 8},
            [
                "seed: 7 in the state, 8 here",
                "rows of a global batch: 24 in the state, None here",
                "tokens of a global batch: None in the state, 160 here",
                "shuffle: global in the state, none here",
            ],
        ),
    ],
)
def test_a_state_of_another_order_is_refused_with_the_differences(
    options: dict[str, Any], lines: list[str], alone: Path
) -> None:
    made_of = {"global_batch_size": 24, "seed": 7}
    state = tokenmill.open(alone).batches("packed", **made_of).state_dict(step=2)
    other = tokenmill.open(alone).batches("packed", **{**made_of, **options})
    assert differences(state, other) == lines


BERT = {"mask_id": 11, "vocab_size": 12, "keep": [0]}
RULE = {
    "mask_id": 11,
    "vocab_size": 12,
    "probability": 0.15,
    "mask_share": 0.8,
    "random_share": 0.1,
    "keep": [0],
}


@pytest.mark.parametrize(
    ("there", "here", "lines"),
    [
        ({"labels": "next"}, {}, ["labels: next in the state, aligned here"]),
        ({}, {"labels": "next"}, ["labels: aligned in the state, next here"]),
        pytest.param({"masked_lm": BERT}, {}, [f"masked_lm: {RULE} in the state, None here"]),
        pytest.param(
            {"masked_lm": BERT},
            {"masked_lm": {**BERT, "probability": 0.3}},
            [f"masked_lm: {RULE} in the state, {RULE | {'probability': 0.3}} here"],
        ),
        (
            {"without_prefix": 3, "across_documents": True, "seed": 4},
            {"loss_spans": False, "overlap_in_loss": False, "without_prefix": 2},
            [
                "seed: 4 in the state, 0 here",
                "across_documents: True in the state, False here",
                "loss_spans: True in the state, False here",
                "overlap_in_loss: None in the state, False here",
                "without_prefix: 3 in the state, 2 here",
            ],
        ),
    ],
)
@pytest.mark.parametrize("sources", [1, 2])
def test_a_state_of_other_labels_is_refused_with_the_differences(
    sources: int, there: dict[str, Any], here: dict[str, Any], lines: list[str], alone: Path
) -> None:
    def batches(options: dict[str, Any]) -> tokenmill.Batches:
        dataset = tokenmill.open(alone)
        if sources == 1:
            return dataset.batches("packed", global_batch_size=24, **options)
        source = MixtureSource(dataset=dataset, plan=tokenmill.open_plan(dataset, "packed"))
        return tokenmill.mix_batches([source, source], global_batch_size=24, **options)

    state = json.loads(json.dumps(batches(there).state_dict(step=2)))
    assert differences(state, batches(here)) == lines
    same = batches(there)
    same.load_state_dict(state)
    assert same.step == 2


def test_a_state_does_not_depend_on_what_a_batch_shows(alone: Path) -> None:
    """Columns, positions, weights and dealing may change where training goes on."""
    dataset = tokenmill.open(alone)
    state = dataset.batches("packed", global_batch_size=24).state_dict(step=2)
    other = dataset.batches(
        "packed", global_batch_size=24, columns=("input_ids",), positions="row",
        loss_weights="document", even_attention=False, labels="aligned",
    )  # fmt: skip
    other.load_state_dict(state)
    assert other.step == 2


def test_where_each_pass_is_the_same_no_state_is_taken(alone: Path) -> None:
    dataset = tokenmill.open(alone)
    batches = dataset.batches("packed", global_batch_size=24, restart=True)
    error = refused(lambda: batches.load_state_dict(batches.state_dict(step=1)))
    assert error.what == "cannot load a state into this loader"
    assert error.why == "each pass starts at the first step, because restart=True"
    whole = all_bytes(batches)
    assert len(whole) == len(batches)
    next(iter(batches))
    assert all_bytes(batches) == whole


# Ranks that nobody named.


@pytest.mark.parametrize("sources", [1, 2])
@pytest.mark.parametrize("options", [{}, {"rank": 1}], ids=["nothing", "rank"])
def test_of_several_processes_each_must_say_which_it_is(
    sources: int, options: dict[str, Any], alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    dataset = tokenmill.open(alone)
    plan = tokenmill.open_plan(dataset, "packed")

    def opened(**more: Any) -> tokenmill.Batches:
        if sources == 1:
            return dataset.batches(plan, global_batch_size=24, **more)
        source = MixtureSource(dataset=dataset, plan=plan)
        return tokenmill.mix_batches([source, source], global_batch_size=24, **more)

    error = refused(lambda: opened(**options))
    assert error.what == "rank and world_size are missing"
    assert error.why == "WORLD_SIZE is 4; without them, all processes train on the same rows"
    assert error.hint == "pass the rank and world_size of data parallelism, or world_size=1"
    for rank, world_size in ((0, 1), (1, 2), (3, 4)):
        assert opened(rank=rank, world_size=world_size).world_size == world_size
    assert opened(world_size=1).rank == 0


def test_a_state_of_another_dataset_or_tokenizer_is_refused_with_both(
    tmp_path: Path, dataset_of: DigitDataset
) -> None:
    tokenizer = write_tokenizer(tmp_path / "other.json", more=["<more>"])
    first = dataset_of(TEXTS, **NEXT_FIT)
    changed = dataset_of([*TEXTS[:-1], "5555556"], **NEXT_FIT)
    retokenized = dataset_of(TEXTS, tokenizer, **NEXT_FIT)
    state = first.batches(global_batch_size=2).state_dict()
    ids = [_ids(dataset) for dataset in (first, changed, retokenized)]
    assert differences(state, changed.batches(global_batch_size=2)) == [
        f"dataset: {ids[0]['dataset']} in the state, {ids[1]['dataset']} here",
        f"plan: {ids[0]['plan']} in the state, {ids[1]['plan']} here",
    ]
    assert differences(state, retokenized.batches(global_batch_size=2)) == [
        f"{name}: {ids[0][name]} in the state, {ids[2][name]} here"
        for name in ("dataset", "tokenizer", "plan")
    ]


def _ids(dataset: Dataset) -> dict[str, str]:
    return {
        "dataset": dataset.manifest.dataset_id,
        "tokenizer": dataset.manifest.tokenizer.sha256,
        "plan": tokenmill.open_plan(dataset, "only").manifest.plan_id,
    }


@pytest.mark.parametrize(
    ("change", "what", "why"),
    [
        (
            {"step": -1},
            "not the state of a loader",
            "Expected `int` >= 0 - at `$.step`",
        ),
        ({"version": 2}, "the state belongs to another loader", "version: 2 in the state, 1 here"),
        (
            {"seed": None},
            "not the state of a loader",
            "Expected `int`, got `null` - at `$.seed`",
        ),
        (
            {"step": "4"},
            "not the state of a loader",
            "Expected `int`, got `str` - at `$.step`",
        ),
        ({"more": 1}, "not the state of a loader", "Object contains unknown field `more`"),
    ],
)
def test_what_is_no_state_is_refused(
    change: dict[str, Any], what: str, why: str, dataset_of: DigitDataset
) -> None:
    batches = dataset_of(TEXTS, **NEXT_FIT).batches(global_batch_size=1)
    state = {**batches.state_dict(), **change}
    error = refused(lambda: batches.load_state_dict(state))
    assert (error.what, error.why) == (what, why)


# Damage.

BLOCK = 64 * 1024


@pytest.fixture(scope="module")
def several_blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One shard whose tokens and whose index are several blocks; batches go through it in order."""
    texts = [str(11**11 + number**2 % 10**11).replace("0", "9")[-11:] for number in range(9000)]
    dataset = digits(tmp_path_factory.mktemp("blocks") / "corpus", texts)
    tokenmill.pack(dataset, name="only", sequence_length=60, packing="next-fit")
    sizes = {part: dataset.shards[0].path(part).stat().st_size for part in ("bin", "idx")}
    assert sizes == {"bin": 9000 * 12 * 2, "idx": HEADER.size + 9000 * 12 + 9001 * 8}
    return dataset.folder


def in_order(folder: Path, **options: Any) -> tokenmill.Batches:
    """60 batches of 30 rows with 5 documents of 12 tokens each."""
    return tokenmill.open(folder).batches(global_batch_size=30, shuffle="none", **options)


@pytest.mark.parametrize(
    ("part", "place", "first"),
    [
        ("bin", 0, 0),
        ("bin", 2 * BLOCK + 17, 2 * BLOCK // (150 * 12 * 2)),
        ("bin", 9000 * 12 * 2 - 1, 3 * BLOCK // (150 * 12 * 2)),
        ("idx", HEADER.size, 0),
        ("idx", BLOCK + 100, 0),
    ],
)
def test_a_changed_byte_is_found_when_its_block_is_first_touched(
    part: str, place: int, first: int, several_blocks: Path, changed: Callable[[Path, int], None]
) -> None:
    """`first`: the step with the first document that has bytes in the block; of an index, all."""
    expected = [batch["input_ids"].tobytes() for batch in in_order(several_blocks)]
    assert len(expected) == 60
    path = tokenmill.open(several_blocks).shards[0].path(part)
    changed(path, place)
    batches = in_order(several_blocks)
    for step in range(first):
        assert batches.batch(step)["input_ids"].tobytes() == expected[step]
    for _ in range(2):
        with pytest.raises(VerificationError) as caught:
            batches.batch(first)
        assert caught.value.what == "a file of the dataset is damaged"
        assert caught.value.where == str(path)
        first_byte = place // BLOCK * BLOCK
        assert caught.value.why == f"the digest of the block at byte {first_byte} differs"
    if part == "bin" and place < 3 * BLOCK:
        assert batches.batch(59)["input_ids"].tobytes() == expected[59]


@pytest.fixture
def changed(request: pytest.FixtureRequest) -> Callable[[Path, int], None]:
    """Changes a bit of a file until the end of the test."""

    def change(path: Path, place: int) -> None:
        data = path.read_bytes()
        request.addfinalizer(lambda: path.write_bytes(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])

    return change


# Open files.


def test_numpy_is_enough(alone: Path) -> None:
    """PyTorch is imported for tensors only."""
    program = f"""
import sys, tokenmill
from tokenmill.load.columns import COLUMNS
dataset = tokenmill.open({str(alone)!r})
plan = tokenmill.open_plan(dataset, "packed")
batches = dataset.batches(plan, batch_size=4, columns=tuple(COLUMNS))
next(iter(batches)), batches.digest(0), batches.state_dict()
source = tokenmill.MixtureSource(dataset=dataset, plan=plan)
mixed = tokenmill.mix_batches([source] * 2, batch_size=4)
print(next(iter(mixed))["input_ids"].shape, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(4, 16) False\n", "")


# Dealing.


@settings(deadline=None)  # the first call may compile
@given(data=st.data())
def test_dealing_is_a_partition_into_equal_parts_that_differ_by_one_row_at_most(
    data: st.DataObject,
) -> None:
    world_size, per_rank = data.draw(st.integers(1, 9)), data.draw(st.integers(0, 7))
    size = world_size * per_rank
    cost = st.integers(0, 10) | st.sampled_from([0, 1, 10**6, 2**48])
    costs = np.array(data.draw(st.lists(cost, min_size=size, max_size=size)), np.int64)
    dealt = deal(costs, world_size)
    assert dealt.shape == (world_size, per_rank)
    assert sorted(dealt.reshape(-1).tolist()) == list(range(size))
    assert (np.diff(dealt, axis=1) > 0).all()
    sums = costs[dealt].sum(axis=1)
    assert sums.max() - sums.min() <= costs.max(initial=0)

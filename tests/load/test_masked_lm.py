"""Masked language models: what is hidden, how often, and that it depends on nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import EOS, MASK, NUM_IDS, all_batches, digits, plan_of

from tokenmill import Dataset
from tokenmill.core.errors import UserError
from tokenmill.core.records import Int64Array
from tokenmill.kernels.rows import REAL
from tokenmill.load.batches import Batches
from tokenmill.load.columns import MaskedLM, mask_tokens
from tokenmill.load.opening import open_batches
from tokenmill.load.rows.reader import Rows
from tokenmill.load.steps.curriculum import Curriculum, Phase
from tokenmill.store.plan import Plan

NO = -100
BERT = MaskedLM(mask_id=1000, vocab_size=1000)
COLUMNS = ("input_ids", "labels", "attention_mask", "loss_weights", "num_targets")


def rows_of(ids: Int64Array, num_real: int | None = None) -> Rows:
    """Rows of which the first `num_real` tokens are no padding."""
    flags = np.full(ids.shape, REAL, np.uint8)
    flags[:, ids.shape[1] if num_real is None else num_real :] = 0
    return Rows(ids, ids, flags, aligned=True)


def masked(
    rows: Rows,
    rule: MaskedLM = BERT,
    *,
    epoch: int = 0,
    seed: int = 0,
    first: int = 0,
    place: int = 0,
    source: int = 0,
) -> tuple[Int64Array, Int64Array]:
    """Rows that are the sequences from `first` on, each from one of its places on."""
    sequences = np.arange(first, first + len(rows.ids))
    same = (np.full_like(sequences, value) for value in (epoch, place, source))
    return mask_tokens(rows, (sequences, *same), seed, rule)


def random_rows(num_rows: int, row_length: int = 1000) -> Rows:
    return rows_of(np.random.default_rng(1).integers(0, 1000, (num_rows, row_length)))


def close(found: int, of: int, share: float) -> bool:
    """Within five standard deviations of a binomial distribution."""
    return abs(found - of * share) <= 5 * (of * share * (1 - share)) ** 0.5


# How often.


def test_shares_are_those_of_bert() -> None:
    rows = random_rows(300)
    ids, labels = masked(rows)
    hidden = labels != NO
    num_hidden = int(hidden.sum())
    assert close(num_hidden, rows.ids.size, 0.15)
    assert close(int((ids[hidden] == BERT.mask_id).sum()), num_hidden, 0.8)
    # A random token is the one that was there once in a thousand times.
    changed = hidden & (ids != BERT.mask_id) & (ids != rows.ids)
    assert close(int(changed.sum()), num_hidden, 0.1 * 999 / 1000)


# What it depends on.


def test_what_is_hidden_never_changes() -> None:
    """Runs are resumed: other places would be other batches. As computed by the model below."""
    rule = MaskedLM(
        mask_id=MASK, vocab_size=NUM_IDS, probability=0.5, mask_share=0.5, random_share=0.4
    )
    ids, labels = masked(rows_of(np.arange(1, 10)[None, :]), rule, seed=7, epoch=1, first=3)
    assert ids.tolist() == [[11, 11, 3, 4, 5, 6, 7, 11, 4]]
    assert labels.tolist() == [[1, 2, NO, 4, NO, NO, NO, 8, 9]]


def mixed(value: int) -> int:
    """The finaliser of splitmix64."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> shift)) * factor % 2**64
    return value ^ (value >> 31)


def hashed(value: int, key: int) -> int:
    start = mixed((key + 0x9E3779B97F4A7C15) % 2**64)
    return mixed((mixed((value + start) % 2**64) + start) % 2**64)


def model(
    row: list[int], rule: MaskedLM, origin: tuple[int, int, int, int], seed: int
) -> tuple[list[int], list[int]]:
    """Three draws for each token: whether it is hidden, how, and behind which other one."""
    sequence, epoch, first, source = origin
    key = hashed((hashed(sequence, seed) + epoch + (source << 48)) % 2**64, seed)
    ids, labels = [], []
    for place, token in enumerate(row, first):
        draws = [hashed(3 * place + number, key) for number in range(3)]
        is_chosen, how = ((draw >> 11) / 2**53 for draw in draws[:2])
        if token in rule.keep or is_chosen >= rule.probability:
            ids.append(token)
            labels.append(NO)
            continue
        labels.append(token)
        if how < rule.mask_share:
            ids.append(rule.mask_id)
        elif how < rule.mask_share + rule.random_share:
            ids.append(draws[2] % rule.vocab_size)
        else:
            ids.append(token)
    return ids, labels


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 20), min_size=7, max_size=7), min_size=1, max_size=3),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1)),
    keep=st.lists(st.integers(0, 20), max_size=4),
    first=st.integers(0, 2**40),
    epoch=st.integers(0, 2**40),
    start=st.integers(0, 2**40),
    source=st.integers(0, 2**14),
    seed=st.integers(0, 2**64 - 1),
)
def test_every_token_is_that_of_a_model_in_plain_integers(
    rows: list[list[int]],
    shares: tuple[float, float, float],
    keep: list[int],
    first: int,
    epoch: int,
    start: int,
    source: int,
    seed: int,
) -> None:
    probability, mask_share, random_share = shares
    rule = MaskedLM(
        mask_id=30,
        vocab_size=13,
        probability=probability,
        mask_share=mask_share,
        random_share=min(random_share, 1 - mask_share),
        keep=tuple(keep),
    )
    origin = {"epoch": epoch, "first": first, "place": start, "source": source}
    ids, labels = masked(rows_of(np.array(rows)), rule, seed=seed, **origin)
    expected = [
        model(row, rule, (sequence, epoch, start, source), seed)
        for sequence, row in enumerate(rows, first)
    ]
    assert list(zip(ids.tolist(), labels.tolist(), strict=True)) == expected


# In batches.


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """24 documents of 8 to 31 digits."""
    texts = ["123456789"[number % 9] * (8 + number) for number in range(24)]
    return digits(tmp_path_factory.mktemp("digits"), texts)


@pytest.fixture(scope="module")
def plan(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    folder = tmp_path_factory.mktemp("plans") / "plan"
    sequences = [[(number, 0, 9 + number)] for number in range(24)]
    return plan_of(folder, dataset, sequences, sequence_length=32)


HALF: dict[str, Any] = {"mask_id": MASK, "vocab_size": NUM_IDS, "probability": 0.5, "keep": [EOS]}


def batches_of(dataset: Dataset, plan: Plan, **options: Any) -> Batches:
    return open_batches(dataset, plan, columns=COLUMNS, masked_lm=HALF, seed=5, **options)


def rows_by_original(batches: list[dict[str, Any]]) -> dict[tuple[int, ...], list[int]]:
    """What each row has become; each document has digits or a length of its own."""
    found = {}
    for batch in batches:
        for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
            original = tuple(i if x == NO else x for i, x in zip(ids, labels, strict=True))
            assert original not in found
            found[original] = ids
    return found


def test_batches_of_any_size_on_any_ranks_hide_the_same(dataset: Dataset, plan: Plan) -> None:
    (whole,) = all_batches(batches_of(dataset, plan, batch_size=24))
    expected = rows_by_original([whole])
    assert len(expected) == 24
    for world_size, rows in ((1, 1), (1, 6), (2, 12), (4, 8), (8, 24)):
        found = [
            batch
            for rank in range(world_size)
            for batch in all_batches(
                batches_of(dataset, plan, global_batch_size=rows, rank=rank, world_size=world_size)
            )
        ]
        assert rows_by_original(found) == expected


@pytest.mark.parametrize("mode", ["document", "square-root"])
def test_weights_count_the_hidden_tokens_of_a_document(
    mode: str, dataset: Dataset, plan: Plan
) -> None:
    (batch,) = all_batches(batches_of(dataset, plan, batch_size=24, loss_weights=mode))
    counts = (batch["labels"] != NO).sum(axis=1)
    expected = np.ones(24) if mode == "document" else np.sqrt(counts)
    assert counts.min() > 0
    assert batch["loss_weights"].sum(axis=1) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("row_length", [1, 8, 16])
def test_rows_that_are_cut_hide_what_whole_ones_do(
    row_length: int, dataset: Dataset, plan: Plan
) -> None:
    """Each place draws for itself: pieces do not repeat what the first of them hides."""
    curriculum = Curriculum.of_plan(plan, dataset, 24, (Phase(row_length=row_length),))
    (cut,) = all_batches(batches_of(dataset, plan, curriculum=curriculum))
    (whole,) = all_batches(batches_of(dataset, plan, batch_size=24))
    assert cut["input_ids"].shape == (24 * 32 // row_length, row_length)
    joined = {name: cut[name].reshape(24, 32) for name in ("input_ids", "labels")}
    assert rows_by_original([joined]) == rows_by_original([whole])
    assert cut["num_targets"] == whole["num_targets"]


# Rules that are refused.


@pytest.mark.parametrize(
    "change",
    [
        {"probability": 1.5},
        {"probability": -0.1},
        {"mask_share": 2},
        {"random_share": -1},
        {"mask_id": -1},
        {"mask_id": 2**31},
        {"keep": [-1]},
        {"vocab_size": None},
        {"vocab_size": 0},
        {"vocab_size": -5},
        {"vocab_size": 2**31 + 1},
        {"whole_words": True},
    ],
)
def test_wrong_rules_are_refused(change: dict[str, Any], dataset: Dataset, plan: Plan) -> None:
    with pytest.raises(UserError) as caught:
        open_batches(dataset, plan, batch_size=1, masked_lm={**HALF, **change})
    assert caught.value.what == "the loader has 1 problem"

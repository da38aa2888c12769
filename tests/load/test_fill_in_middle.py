"""Fill-in-the-middle: whole rows, nothing lost by the cuts, and what the draws depend on.

Digit d has id d, the end of a document 0, padding 10; PRE, MID and SUF mark the parts of a text.
"""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import EOS, NUM_IDS, PAD, all_batches, digits, plan_of, write_tokenizer
from tokenizers.processors import TemplateProcessing

import tokenmill
from conftest import random_trials
from tokenmill import Dataset, FillInMiddle
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.load import fill_in_middle as sentinels
from tokenmill.load.batches import Batches
from tokenmill.load.fill_in_middle import KNOWN, find_sentinels
from tokenmill.load.opening import mix_batches, open_batches
from tokenmill.load.steps.curriculum import Curriculum, Phase
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.store.plan import Plan

NO = -100
PRE, MID, SUF, BOS, END = NAMED = range(NUM_IDS, NUM_IDS + 5)
STAR_CODER = ("<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<bos>", "<end>")
ALWAYS = FillInMiddle(rate=1)
COLUMNS = ("input_ids", "labels", "position_ids", "segment_ids")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fill-in-middle")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Path:
    return write_tokenizer(folder / "tokenizer.json", STAR_CODER)


@pytest.fixture(scope="module")
def dataset(folder: Path, tokenizer: Path) -> Dataset:
    """Two documents of 9 and of 5 digits."""
    return digits(folder / "two", ["123456789", "12345"], tokenizer)


@pytest.fixture(scope="module")
def plan(folder: Path, dataset: Dataset) -> Plan:
    """The first document whole, then cut after 6 digits, in front of the second one."""
    sequences = [[(0, 0, 10)], [(0, 0, 6), (1, 0, 6)]]
    return plan_of(folder / "plan", dataset, sequences, sequence_length=20, reserve=4)


def cut(dataset: Dataset, plan: Plan, rule: FillInMiddle = ALWAYS, **options: Any) -> Batches:
    wanted = {"shuffle": "none", "columns": COLUMNS, "global_batch_size": 1, **options}
    return open_batches(dataset, plan, fill_in_middle=rule, **wanted)


def rows(batches: Batches, column: str = "input_ids") -> list[list[int]]:
    return [row for batch in all_batches(batches) for row in batch[column].tolist()]


def segments(batches: Batches) -> list[list[int]]:
    """The ids of every segment, padding left out."""
    found = []
    for batch in all_batches(batches):
        for ids, numbers in zip(batch["input_ids"], batch["segment_ids"], strict=True):
            found += [ids[numbers == k].tolist() for k in np.unique(numbers[numbers >= 0])]
    return found


def undone(ids: list[int], lead: tuple[int, ...] = ()) -> list[int]:
    """The text of a segment without what stands around it, put together again."""
    text = ids[len(lead) :] if ids[: len(lead)] == list(lead) else ids
    text = [token for token in text if token not in (EOS, END)]
    if PRE not in text:
        return text
    assert text[0] == PRE
    suffix_at, middle_at = text.index(SUF), text.index(MID)
    suffix, middle = text[suffix_at + 1 : middle_at], text[middle_at + 1 :]
    return text[1:suffix_at] + middle + suffix  # with the suffix first, the prefix is in `middle`


# Whole rows.


@pytest.mark.parametrize("labels", ["aligned", "next"])
def test_whole_rows(dataset: Dataset, plan: Plan, labels: str) -> None:
    """The second segment is a part of a document, and is given an EOS."""
    batches = cut(dataset, plan, seed=4, labels=labels)
    first = [PRE, 1, 2, 3, 4, SUF, 7, 8, 9, MID, 5, 6, EOS]
    second = [PRE, SUF, 5, 6, MID, 1, 2, 3, 4, EOS]
    third = [PRE, 1, 2, 3, SUF, 5, MID, 4, EOS]
    assert rows(batches) == [[*first, *[PAD] * 7], [*second, *third, PAD]]
    targets = {
        "aligned": [[NO, *each[1:]] for each in (first, second, third)],
        "next": [[*each[1:], NO] for each in (first, second, third)],
    }[labels]
    assert rows(batches, "labels") == [
        [*targets[0], *[NO] * 7],
        [*targets[1], *targets[2], NO],
    ]
    assert rows(batches, "position_ids") == [
        [*range(13), *range(7)],
        [*range(10), *range(9), 0],
    ]
    assert rows(batches, "segment_ids") == [[*[0] * 13, *[-1] * 7], [*[0] * 10, *[1] * 9, -1]]


# What stands around a text stays where it is.


def test_a_bos_stays_first_and_an_end_is_put_before_the_eos(folder: Path, tokenizer: Path) -> None:
    made = tokenizers.Tokenizer.from_file(str(tokenizer))
    made.post_processor = TemplateProcessing("<bos> $A", special_tokens=[("<bos>", BOS)])
    made.save(str(folder / "bos.json"))
    dataset = digits(folder / "bos", ["123456", "12345678"], folder / "bos.json")
    sequences = [[(0, 0, 8)], [(1, 0, 5), (1, 5, 5)]]
    plan = plan_of(
        folder / "bos-plan", dataset, sequences,
        sequence_length=24, reserve=4, at_cuts="bos-and-eos",
    )  # fmt: skip
    ended = FillInMiddle(rate=1, spm_share=0, end="<end>")
    cut_rows = segments(cut(dataset, plan, ended))
    assert [each[:2] for each in cut_rows] == [[BOS, PRE]] * 3
    assert [each[-2:] for each in cut_rows] == [[END, EOS]] * 3
    assert [undone(each, (BOS,)) for each in cut_rows] == [
        [1, 2, 3, 4, 5, 6], [1, 2, 3, 4], [5, 6, 7, 8],
    ]  # fmt: skip
    plain_rows = segments(cut(dataset, plan, FillInMiddle(rate=1)))
    assert [each[-1] for each in plain_rows] == [EOS] * 3
    assert not any(END in each for each in plain_rows)


# Nothing is lost, whatever is drawn.


@pytest.fixture(scope="module")
def many(folder: Path, tokenizer: Path) -> Dataset:
    """Documents of 1 to 60 digits."""
    draw = np.random.default_rng(0)
    texts = ["".join(map(str, draw.integers(1, 10, draw.integers(1, 61)))) for _ in range(60)]
    return digits(folder / "many", texts, tokenizer)


PLANNED: list[dict[str, Any]] = [
    {},
    {"packing": "concat-and-chunk"},
    {"at_cuts": "bos-and-eos", "segment_multiple": 8},
    {"packing": "next-fit", "sequence_multiple": 64, "long_documents": "keep-end"},
]


@pytest.fixture(scope="module")
def plans(folder: Path, many: Dataset) -> list[Plan]:
    return [
        tokenmill.pack(
            many, sequence_length=40, reserve=4, folder=folder / f"many-{number}", **options
        ).plan
        for number, options in enumerate(PLANNED)
    ]


@random_trials(
    15,
    500,
    number=st.integers(0, len(PLANNED) - 1),
    seed=st.integers(0, 2**63 - 1),
    rate=st.sampled_from([0.5, 1.0]),
    spm_share=st.sampled_from([0.0, 0.5, 1.0]),
    end=st.sampled_from([None, END]),
)
def test_parts_put_together_are_the_texts_that_were_stored(
    many: Dataset,
    plans: list[Plan],
    number: int,
    seed: int,
    rate: float,
    spm_share: float,
    end: int | None,
) -> None:
    rule = FillInMiddle(rate=rate, spm_share=spm_share, end=end, prefix=PRE, middle=MID, suffix=SUF)
    plain = open_batches(
        many, plans[number], global_batch_size=1, seed=seed, columns=COLUMNS, epochs=2
    )
    found = cut(many, plans[number], rule, seed=seed, shuffle="global", epochs=2)
    expected = [undone(each) for each in segments(plain)]
    assert [undone(each) for each in segments(found)] == expected
    counts = Counter(found.filled_in_middle)
    assert sum(counts.values()) == len(expected)
    assert counts.keys() <= {"PSM", "SPM", "as stored", "too short"}


@given(seed=st.integers(0, 2**63 - 1))
@settings(max_examples=10, deadline=None)
def test_every_token_but_the_first_of_a_segment_is_a_target(
    many: Dataset, plans: list[Plan], seed: int
) -> None:
    """In rows that are cut, whose segments have no cuts of their own."""
    for labels, shift in (("aligned", 0), ("next", 1)):
        for batch in all_batches(cut(many, plans[0], seed=seed, labels=labels)):
            ids, positions = batch["input_ids"], batch["position_ids"]
            is_target = (positions > 0) & (batch["segment_ids"] >= 0)
            was_cut = np.isin(batch["segment_ids"], batch["segment_ids"][ids == PRE])
            if shift:
                is_target, ids = np.roll(is_target, -1), np.roll(ids, -1)
            expected = np.where(is_target, ids, NO)
            assert (batch["labels"] == expected)[was_cut].all()


# What the draws depend on.


def test_ranks_resuming_and_processes_change_nothing(many: Dataset, plans: list[Plan]) -> None:
    whole = cut(many, plans[0], shuffle="global", seed=3, global_batch_size=4, epochs=2)
    expected = [batch["input_ids"].tolist() for batch in all_batches(whole)]
    parts = [
        cut(
            many, plans[0], shuffle="global", seed=3, global_batch_size=4, epochs=2,
            rank=rank, world_size=2,
        )
        for rank in range(2)
    ]  # fmt: skip
    for step, rows_of_step in enumerate(expected):
        dealt = [row for part in parts for row in part.batch(step)["input_ids"].tolist()]
        assert sorted(dealt) == sorted(rows_of_step)
        assert {part.digest(step) for part in parts} == {whole.digest(step)}
    later = pickle.loads(pickle.dumps(parts[1]))
    later.load_state_dict(whole.state_dict(2))
    again = [batch["input_ids"].tolist() for batch in later]
    assert again == [batch["input_ids"].tolist() for batch in parts[1].every(1, 2)]


def test_epochs_seeds_sequences_and_sources_draw_on_their_own(
    dataset: Dataset, folder: Path
) -> None:
    same = [[(0, 0, 10)], [(0, 0, 10)]]
    plan = plan_of(folder / "same", dataset, same, sequence_length=14, reserve=4)
    rule = FillInMiddle(rate=1, spm_share=0)
    found = {
        tuple(row)
        for seed in range(3)
        for row in rows(cut(dataset, plan, rule, seed=seed, epochs=3))
    }
    assert len(found) > 12  # of 18, and 55 pairs of places
    sources = [MixtureSource(dataset=dataset, plan=plan) for _ in range(2)]
    mixed = mix_batches(
        sources, global_batch_size=4, shuffle="none", columns=COLUMNS, fill_in_middle=rule
    )
    assert len({tuple(row) for row in rows(mixed)}) == 4


def test_the_shares_are_those_that_are_asked_for(folder: Path, dataset: Dataset) -> None:
    repeated = plan_of(
        folder / "repeated", dataset, [[(0, 0, 10)]] * 1000, sequence_length=20, reserve=4
    )
    batches = cut(dataset, repeated, FillInMiddle(rate=0.3, spm_share=0.2), global_batch_size=1000)
    all_batches(batches)
    counts = batches.filled_in_middle
    assert close(counts["PSM"] + counts["SPM"], 1000, 0.3)
    assert close(counts["SPM"], counts["PSM"] + counts["SPM"], 0.2)
    assert set(counts) == {"PSM", "SPM", "as stored"}


# What stays as it is, and is counted.


def test_short_texts_those_with_ranges_without_loss_and_those_with_sentinels_stay(
    folder: Path, tokenizer: Path
) -> None:
    texts = ["12", "1234", "12<fim_middle>45", "1234567"]
    no_loss = [[], [[1, 2]], [], [[5, 6]]]
    dataset = digits(folder / "kept", texts, tokenizer, no_loss=no_loss, special_tokens="control")
    sequences = [[(0, 0, 3)], [(1, 0, 5)], [(2, 0, 6)], [(3, 0, 4)], [(3, 4, 4)]]
    plan = plan_of(folder / "kept-plan", dataset, sequences, sequence_length=12, reserve=4)
    batches = cut(dataset, plan, global_batch_size=5)
    found = segments(batches)
    assert found[:3] == [[1, 2, EOS], [1, 2, 3, 4, EOS], [1, 2, MID, 4, 5, EOS]]
    assert found[3][0] == PRE  # the part of the document that holds no such range
    assert found[4] == [5, 6, 7, EOS]
    assert batches.filled_in_middle == {
        "PSM": 1, "too short": 1, "tokens without loss": 2, "holds a sentinel": 1,
    }  # fmt: skip
    everything = cut(dataset, plan, global_batch_size=5, loss_spans=False)
    all_batches(everything)
    assert "tokens without loss" not in everything.filled_in_middle


# Sentinels.


@pytest.mark.parametrize("model", KNOWN)
def test_sentinels_of_known_models_are_found(
    dataset: Dataset, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OfTheModel:
        def token_id(self, token: str) -> int | None:
            return 1 + KNOWN[model].index(token) if token in KNOWN[model] else None

    monkeypatch.setattr(sentinels, "open_reference", lambda dataset: OfTheModel())
    end = 4 if model == "Code Llama" else -1
    assert find_sentinels(dataset, (None,) * 4) == (1, 2, 3, end, EOS)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"prefix": "<fim_prefix>"}, "some sentinels are missing"),
        ({"prefix": "<a>", "middle": MID, "suffix": SUF}, "the tokenizer has no token '<a>'"),
        ({"prefix": PRE, "middle": MID, "suffix": 99}, "no token has the id 99"),
        ({"prefix": PRE, "middle": MID, "suffix": PRE}, "the sentinels must be different tokens"),
    ],
)
def test_sentinels_that_cannot_be_are_refused(
    dataset: Dataset, plan: Plan, names: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        cut(dataset, plan, FillInMiddle(**names))


# What does not go together.


def test_a_plan_that_reserves_no_places_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    plan = plan_of(tmp_path / "plan", dataset, [[(0, 0, 10)]], sequence_length=20)
    with pytest.raises(UserError, match="does not reserve enough positions") as caught:
        cut(dataset, plan)
    assert "tokenmill pack --reserve 4" in str(caught.value)


def test_a_plan_that_says_it_reserves_places_and_does_not_is_damaged(
    dataset: Dataset, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path / "plan", dataset, [[(0, 0, 10)]], sequence_length=10, reserve=4)
    with pytest.raises(
        VerificationError, match="with its reserved positions is longer than its row"
    ):
        cut(dataset, plan).batch(0)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"across_documents": True}, "predict a sentinel of the next document"),
        ({"without_prefix": 2}, "excludes the first tokens of a document"),
        ({"masked_lm": {"mask_id": 11, "vocab_size": 12}}, "cannot be combined with masked_lm"),
    ],
)
def test_options_that_contradict_it_are_refused(
    dataset: Dataset, plan: Plan, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        cut(dataset, plan, **options)


def test_rows_that_a_curriculum_cuts_are_refused(dataset: Dataset, plan: Plan) -> None:
    phases = (Phase(row_length=10), Phase(first_step=1))
    growing = Curriculum.of_plan(plan, dataset, batch_size=1, phases=phases)
    with pytest.raises(UserError, match="the curriculum cuts rows"):
        open_batches(dataset, plan, curriculum=growing, fill_in_middle=ALWAYS)
    whole = Curriculum.of_plan(plan, dataset, batch_size=1)
    batches = open_batches(dataset, plan, curriculum=whole, fill_in_middle=ALWAYS, columns=COLUMNS)
    assert len(segments(batches)) == 3
    whole.change(Phase(first_step=1, row_length=10))
    with pytest.raises(UserError, match="the curriculum cuts rows"):
        batches.batch(1)


def test_a_state_goes_with_the_same_shares_and_sentinels(dataset: Dataset, plan: Plan) -> None:
    state = cut(dataset, plan).state_dict()
    cut(dataset, plan, FillInMiddle(rate=1, prefix=PRE, middle=MID, suffix=SUF)).load_state_dict(
        state
    )
    for other in (FillInMiddle(rate=0.5), FillInMiddle(rate=1, end="<end>")):
        with pytest.raises(UserError, match="fill_in_middle: "):
            cut(dataset, plan, other).load_state_dict(state)
    plain = open_batches(dataset, plan, global_batch_size=1, shuffle="none")
    with pytest.raises(UserError, match=r"fill_in_middle: .* in the state, None here"):
        plain.load_state_dict(state)
    assert "fill_in_middle" not in plain.state_dict()["labels"]


def close(found: int, of: int, share: float) -> bool:
    """Within five standard deviations of a binomial distribution."""
    return abs(found - of * share) <= 5 * (of * share * (1 - share)) ** 0.5

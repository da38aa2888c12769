"""Plans of real datasets: every token once, windows of shards, figures that can be recounted."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
import tokenizers
from corpora import contents, write_corpus

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import OutputConflictError, StorageError, UserError, VerificationError
from tokenmill.encode.words.patterns import QWEN2_SPLIT
from tokenmill.pack import planning as packing_module
from tokenmill.pack.comparison import compare
from tokenmill.pack.figures import Figures, Ledger
from tokenmill.pack.options import Packing, PackOptions
from tokenmill.pack.planning import boundary_tables, figures_of, pack, plan_folder
from tokenmill.read import units
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import PLAN_NAME, Plan, open_plan
from tokenmill.store.stored_reference import open_reference

STRATEGIES = get_args(Packing)
EOS = "<|endoftext|>"
Row = list[tuple[int, int, int]]


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 3,000 bytes become a shard each: no two of them go into a unit."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 4 << 10)
    monkeypatch.setattr(units, "PIECE_BYTES", 4 << 10)


@pytest.fixture(scope="module")
def corpus(
    tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path
) -> Iterator[tokenmill.Dataset]:
    """Documents of up to some 150 tokens in twelve shards of three sources."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder / "data", num_files=3, per_file=150)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 8 << 10)
        patch.setattr(units, "PIECE_BYTES", 4 << 10)
        yield tokenmill.build(
            folder / "data", tokenizer_path, folder / "out", workers=1, id_field="id"
        ).dataset


def build_texts(
    folder: Path, tokenizer_path: Path, *shards: list[str], **options: Any
) -> tokenmill.BuildReport:
    """A dataset whose shards hold these texts."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for number, texts in enumerate(shards):
        path = write_jsonl(folder / f"{number}.jsonl", texts)
        data = path.read_bytes().ljust(3000, b"\n")
        if not (folder / "data" / path.name).is_file():  # a file touched is a file changed
            (folder / "data" / path.name).write_bytes(data)
        assert (folder / "data" / path.name).read_bytes() == data
    return tokenmill.build(folder / "data", tokenizer_path, folder / "out", workers=1, **options)


def build_lengths(
    folder: Path, tokenizer_path: Path, *shards: list[int], **options: Any
) -> tokenmill.Dataset:
    """A dataset whose shards hold documents of these lengths: a Z is a token, and so is the end."""
    texts = [["Z" * (length - 1) for length in lengths] for lengths in shards]
    dataset = build_texts(folder, tokenizer_path, *texts, **options).dataset
    assert [shard.lengths.tolist() for shard in dataset.shards] == list(shards)
    return dataset


def options_of(length: int, **options: Any) -> PackOptions:
    return PackOptions(sequence_length=length, **options)


def rows(plan: Plan) -> list[Row]:
    return [plan.segments(sequence) for sequence in range(len(plan))]


def lengths_of(dataset: Dataset) -> list[int]:
    return [length for shard in dataset.shards for length in shard.lengths.tolist()]


def assert_every_token_stands_once(plan: Plan, dataset: Dataset) -> None:
    seen = [np.zeros(length, np.int64) for length in lengths_of(dataset)]
    for row in rows(plan):
        for document, start, length in row:
            assert length > 0
            assert start + length <= len(seen[document])
            seen[document][start : start + length] += 1
    assert all((counts == 1).all() for counts in seen)


def recount(plan: Plan, dataset: Dataset, length: int) -> dict[str, int]:
    """Figures of a plan that splits, from its arrays and the lengths alone."""
    all_lengths, found = lengths_of(dataset), rows(plan)
    segments = [segment for row in found for segment in row]
    tokens = sum(length for _, _, length in segments)
    unfinished = [(d, s) for d, s, n in segments if s + n < all_lengths[d]]
    return {
        "documents": len(all_lengths),
        "tokens": sum(all_lengths),
        "sequences": len(found),
        "segments": len(segments),
        "tokens_in_sequences": tokens,
        "row_tokens": len(found) * length,
        "padding": len(found) * length - tokens,
        "cuts": len(unfinished),
        "documents_cut": len({document for document, _ in unfinished}),
        "unavoidable_cuts": sum((n - 1) // length for n in all_lengths),
        "most_segments": max(map(len, found)),
        "attention_cost": sum(length**2 for _, _, length in segments),
        "repeated_tokens": 0,
        "tokens_set_at_cuts": 0,
    }


# A plan of a dataset.


def test_a_plan_of_two_shards_in_full(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5], [2, 10])
    report = pack(dataset, options_of(8))
    assert report.plan.folder == tmp_path / "out" / "plans" / "best-fit-8"
    assert rows(report.plan) == [
        [(0, 0, 3), (1, 0, 5)],
        [(2, 0, 2), (3, 8, 2)],
        [(3, 0, 8)],
    ]
    assert report.figures == Figures(
        documents=4,
        tokens=20,
        sequences=3,
        segments=5,
        tokens_in_sequences=20,
        padding=4,
        row_tokens=24,
        documents_cut=1,
        cuts=1,
        unavoidable_cuts=1,
        most_segments=2,
        attention_cost=9 + 25 + 4 + 4 + 64,
        left_out_documents={},
        left_out_tokens={},
        lost_documents={},
        lost_tokens={},
        mean_imbalance=None,
        worst_imbalance=None,
        neighbour_length_correlation=report.figures.neighbour_length_correlation,
        neighbour_source_share=0.5,
        lower_bound=3,
        planned_globally=3,
    )
    assert (report.figures.fill, report.figures.gap) == (20 / 24, 0.0)
    assert report.already_there is False


def test_the_arrays_need_numpy_alone(corpus: Dataset, tmp_path: Path) -> None:
    plan = pack(corpus, options_of(64), tmp_path / "plan").plan
    offsets, documents, starts, lengths = (
        np.load(tmp_path / "plan" / f"{name}.npy")
        for name in ("offsets", "documents", "starts", "lengths")
    )
    count = plan.manifest.num_segments
    assert [array.dtype.str for array in (offsets, documents, starts, lengths)] == [
        "<i8",
        "<u4",
        "<u4",
        "<u4",
    ]
    assert [array.shape for array in (documents, starts, lengths)] == [(count,)] * 3
    assert offsets.shape == (len(plan) + 1,)
    assert (offsets[0], offsets[-1], lengths.sum()) == (0, count, corpus.num_tokens)
    assert np.add.reduceat(lengths, offsets[:-1]).max() <= 64


@pytest.mark.parametrize("window_sequences", [10, 10_000])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_token_stands_in_exactly_one_sequence(
    strategy: Packing, window_sequences: int, corpus: Dataset, tmp_path: Path
) -> None:
    options = options_of(
        64, packing=strategy, window_sequences=window_sequences, smallest_bucket=16
    )
    plan = pack(corpus, options, tmp_path / "plan").plan
    assert_every_token_stands_once(plan, corpus)
    assert max(sum(length for _, _, length in row) for row in rows(plan)) <= 64


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "length-buckets"])
def test_the_figures_are_those_of_a_recount(
    strategy: Packing, corpus: Dataset, tmp_path: Path
) -> None:
    report = pack(corpus, options_of(64, packing=strategy, window_sequences=10), tmp_path / "plan")
    counted = recount(report.plan, corpus, 64)
    assert {name: getattr(report.figures, name) for name in counted} == counted
    assert report.figures.lower_bound <= report.figures.sequences


def test_a_plan_carries_the_figures_that_were_reported(corpus: Dataset, tmp_path: Path) -> None:
    for strategy in STRATEGIES:
        options = options_of(64, packing=strategy, smallest_bucket=16)
        report = pack(corpus, options, tmp_path / strategy)
        assert figures_of(Plan(tmp_path / strategy)) == report.figures


def test_packing_changes_no_byte_of_the_dataset(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5], [2, 10])
    before = contents(tmp_path / "out")
    pack(dataset, options_of(8))
    after = contents(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    assert sorted(set(after) - set(before)) == [
        f"plans/best-fit-8/{name}"
        for name in ("documents.npy", "lengths.npy", "offsets.npy", "plan.json", "starts.npy")
    ]
    assert tokenmill.verify(tmp_path / "out")


def test_plans_stand_beside_each_other_and_elsewhere(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    pack(dataset, options_of(8))
    pack(dataset, options_of(16))
    pack(dataset, options_of(8, packing="next-fit", subset="train"))
    pack(dataset, options_of(8), tmp_path / "far" / "away")
    assert sorted(path.name for path in (tmp_path / "out" / "plans").iterdir()) == [
        "best-fit-16",
        "best-fit-8",
        "next-fit-8-train",
    ]
    assert rows(open_plan(dataset, tmp_path / "far" / "away")) == [[(0, 0, 3), (1, 0, 5)]]
    assert rows(open_plan(dataset, "best-fit-8")) == [[(0, 0, 3), (1, 0, 5)]]


def test_a_plan_elsewhere_is_the_same_plan(corpus: Dataset, tmp_path: Path) -> None:
    for name in ("a", "b"):
        pack(corpus, options_of(64), tmp_path / name)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_the_workers_of_the_build_change_no_byte_of_a_plan(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    write_corpus(tmp_path / "data", per_file=100)
    plans = []
    for workers in (1, 2):
        out = tmp_path / f"out-{workers}"
        report = tokenmill.build(
            tmp_path / "data", tokenizer_path, out, workers=workers, sequence_length=64
        )
        assert len(report.dataset.shards) > 5
        plans.append(contents(out / "plans"))
    assert plans[0] == plans[1]
    assert sorted(plans[0])[0] == "best-fit-64/documents.npy"


def test_packing_reports_how_far_it_has_come(corpus: Dataset, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    pack(
        corpus,
        options_of(64, window_sequences=50),
        tmp_path / "plan",
        advance=lambda *step: told.append(step),
    )
    dones = [done for _, done, _ in told]
    assert dones == sorted(set(dones))
    assert told[-1] == ("packing", corpus.num_documents, corpus.num_documents)


def test_dropping_everything_leaves_nothing_to_pack(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    with pytest.raises(UserError, match="nothing to pack") as caught:
        pack(dataset, options_of(2, long_documents="drop"))
    assert caught.value.why == "every document is too long, and long documents are dropped"
    assert list((tmp_path / "out").glob("plans/*")) == []


def test_dropping_is_entered_as_lost(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5], [6])
    report = pack(dataset, options_of(4, long_documents="drop"))
    assert rows(report.plan) == [[(0, 0, 3)]]
    assert report.figures.lost_documents == {"dropped": 2}
    assert report.figures.lost_tokens == {"dropped": 11}


def test_neighbours_are_of_one_source_where_their_documents_are(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    """The second shard holds two sources; neither of them is that of the first."""
    (tmp_path / "data").mkdir()
    for name, size in (("a", 3000), ("b", 1500), ("c", 1500)):
        path = write_jsonl(tmp_path / "data" / f"{name}.jsonl", ["ZZZ"])
        path.write_bytes(path.read_bytes().ljust(size, b"\n"))
    dataset = tokenmill.build(
        tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1
    ).dataset
    assert [len(shard.entry.extents) for shard in dataset.shards] == [1, 2]
    report = pack(dataset, options_of(4, packing="next-fit"))
    assert rows(report.plan) == [[(0, 0, 4)], [(1, 0, 4)], [(2, 0, 4)]]
    assert report.figures.neighbour_source_share == 0.0


# Windows.


def windows(plan: Plan) -> list[tuple[int, int]]:
    return [(window.shards, window.sequences) for window in plan.manifest.windows]


@pytest.mark.parametrize(
    ("window_sequences", "expected"),
    [
        (1, [(1, 1), (1, 2), (1, 1), (2, 2)]),  # the last shard, of 4 tokens, fills no sequence
        (2, [(2, 3), (3, 3)]),
        (3, [(5, 6)]),
        (100, [(5, 6)]),
    ],
)
def test_a_window_is_as_many_shards_as_fill_its_sequences(
    window_sequences: int,
    expected: list[tuple[int, int]],
    tmp_path: Path,
    tokenizer_path: Path,
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [8], [8, 5], [2, 6], [8], [4])
    report = pack(dataset, options_of(8, window_sequences=window_sequences))
    assert windows(report.plan) == expected


def test_a_rest_joins_the_window_before_it(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [8], [5, 3], [2], [2], [2])
    plan = pack(dataset, options_of(8, window_sequences=1)).plan
    assert windows(plan) == [(1, 1), (4, 2)]
    assert plan.window_starts.tolist() == [0, 1, 3]


def test_no_sequence_crosses_a_window(corpus: Dataset, tmp_path: Path) -> None:
    plan = pack(corpus, options_of(64, window_sequences=20), tmp_path / "plan").plan
    counts = [shard.entry.documents for shard in corpus.shards]
    shards_before = np.cumsum([0, *(window.shards for window in plan.manifest.windows)])
    first_documents = np.cumsum([0, *counts])[shards_before]
    assert len(plan.manifest.windows) > 3
    assert shards_before[-1] == len(corpus.shards)
    assert plan.window_starts[-1] == len(plan)
    for number, (first, stop) in enumerate(
        zip(plan.window_starts, plan.window_starts[1:], strict=False)
    ):
        documents = [document for row in rows(plan)[first:stop] for document, _, _ in row]
        assert first_documents[number] == min(documents)
        assert max(documents) == first_documents[number + 1] - 1


def test_a_global_window_holds_all_shards(corpus: Dataset, tmp_path: Path) -> None:
    report = pack(corpus, options_of(64, window="global", window_sequences=1), tmp_path / "plan")
    assert windows(report.plan) == [(len(corpus.shards), len(report.plan))]


def test_a_local_window_of_everything_is_the_global_one(corpus: Dataset, tmp_path: Path) -> None:
    pack(corpus, options_of(64, window_sequences=10_000), tmp_path / "local")
    pack(corpus, options_of(64, window="global"), tmp_path / "global")
    local, everything = contents(tmp_path / "local"), contents(tmp_path / "global")
    for name in ("offsets.npy", "documents.npy", "starts.npy", "lengths.npy"):
        assert local[name] == everything[name]


def test_different_numbers_that_mean_the_same_windows_give_the_same_arrays(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [8, 8], [8, 8])
    for number in (1, 2):
        pack(dataset, options_of(8, window_sequences=number), tmp_path / str(number))
    first, second = contents(tmp_path / "1"), contents(tmp_path / "2")
    del first[PLAN_NAME], second[PLAN_NAME]
    assert first == second


def test_the_price_of_locality_is_known(tmp_path: Path, tokenizer_path: Path) -> None:
    """Documents of 5 and of 3 tokens make whole sequences, but stand in different shards."""
    dataset = build_lengths(tmp_path, tokenizer_path, [5, 5], [3, 3, 3])
    local = pack(dataset, options_of(8, window_sequences=1)).figures
    everything = pack(dataset, options_of(8, window="global"), tmp_path / "plan").figures
    assert (local.sequences, local.planned_globally) == (4, 3)
    assert (everything.sequences, everything.planned_globally) == (3, 3)


def test_only_best_fit_has_a_price_of_locality(corpus: Dataset) -> None:
    found = compare(corpus, options_of(64, smallest_bucket=16))
    known = [row.packing for row in found if row.figures and row.figures.planned_globally]
    assert known == ["best-fit"]


@pytest.mark.parametrize(
    "options", [{}, {"separate_by": "id"}, {"max_segments": 2}], ids=["plain", "kinds", "segments"]
)
def test_one_window_has_no_price_of_locality(
    options: dict[str, Any], corpus: Dataset, tmp_path: Path
) -> None:
    figures = pack(corpus, options_of(64, window="global", **options), tmp_path / "plan").figures
    assert figures.planned_globally in (None, figures.sequences)


# What stands in the way.


def test_the_same_plan_again_is_already_there(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    first = pack(dataset, options_of(8))
    before = {p.name: p.stat().st_mtime_ns for p in first.plan.folder.iterdir()}
    again = pack(dataset, options_of(8))
    assert (first.already_there, again.already_there) == (False, True)
    assert again.figures == first.figures
    assert again.plan.manifest == first.plan.manifest
    assert {p.name: p.stat().st_mtime_ns for p in first.plan.folder.iterdir()} == before


def test_other_options_conflict_until_they_are_to_overwrite(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    pack(dataset, options_of(8))
    with pytest.raises(OutputConflictError, match="holds another plan") as caught:
        pack(dataset, options_of(8, at_cuts="eos"))
    assert caught.value.why == "its options differ"
    assert caught.value.where == str(tmp_path / "out" / "plans" / "best-fit-8")
    report = pack(dataset, options_of(8, at_cuts="eos"), overwrite=True)
    assert report.plan.manifest.options["at_cuts"] == "eos"
    assert pack(dataset, options_of(8, at_cuts="eos")).already_there


def test_a_plan_of_another_dataset_conflicts_and_is_not_opened(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    first = build_lengths(tmp_path / "a", tokenizer_path, [3, 5])
    second = build_lengths(tmp_path / "b", tokenizer_path, [3, 6])
    plan = pack(first, options_of(8), tmp_path / "plan").plan
    plan.check_dataset(first)
    with pytest.raises(UserError, match="the plan belongs to a different dataset"):
        plan.check_dataset(second)
    with pytest.raises(UserError, match="the plan belongs to a different dataset"):
        open_plan(second, tmp_path / "plan")
    with pytest.raises(OutputConflictError, match="holds another plan") as caught:
        pack(second, options_of(8), tmp_path / "plan")
    assert caught.value.why == "its dataset differs"


def test_a_damaged_plan_is_replaced_when_asked(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    folder = pack(dataset, options_of(8)).plan.folder
    (folder / "starts.npy").write_bytes(b"")
    with pytest.raises(VerificationError, match="a plan is damaged"):
        pack(dataset, options_of(8))
    assert rows(pack(dataset, options_of(8), overwrite=True).plan) == [[(0, 0, 3), (1, 0, 5)]]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_plan_is_kept(
    overwrite: bool, tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(OutputConflictError, match="the folder of the plan already exists"):
        pack(dataset, options_of(8), tmp_path / "mine", overwrite=overwrite)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_folder_of_the_dataset_is_no_place_for_a_plan(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    before = contents(tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    for folder in (tmp_path / "out", Path()):
        with pytest.raises(OutputConflictError, match="the folder of the plan already exists"):
            pack(dataset, options_of(8), folder, overwrite=True)
    assert contents(tmp_path / "out") == before


def test_a_plan_is_asked_for_by_a_name_that_exists(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    with pytest.raises(UserError, match="cannot find the plan 'best-fit-8'") as caught:
        open_plan(dataset, "best-fit-8")
    assert caught.value.why == "the dataset has no plans"
    pack(dataset, options_of(8))
    pack(dataset, options_of(16))
    (tmp_path / "out" / "plans" / ".best-fit-8.1.tmp").mkdir()
    (tmp_path / "out" / "plans" / ".best-fit-8.1.tmp" / PLAN_NAME).write_text("{}")
    with pytest.raises(UserError, match="cannot find the plan 'best-fit-4'") as caught:
        open_plan(dataset, "best-fit-4")
    assert caught.value.why == "the dataset has best-fit-16, best-fit-8"
    assert caught.value.hint == "choose one of these, or create one with tokenmill pack"


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("best-fit-8", "did you mean best-fit-8-train?"),
        ("next", "did you mean next-fit-8-train?"),
        ("bestfit-8-train", "did you mean best-fit-8-train?"),
        ("BEST_FIT_8_train", "did you mean best-fit-8-train?"),
        ("best-fit-8-trian", "did you mean best-fit-8-train?"),
        ("best-fit-16-train", "choose one of these, or create one with tokenmill pack"),
        ("best-fit-16", "choose one of these, or create one with tokenmill pack"),
        ("validation", "choose one of these, or create one with tokenmill pack"),
    ],
)
def test_a_plan_is_suggested_if_one_is_meant(
    asked: str, hint: str, tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    for name in ("best-fit-8-train", "next-fit-8-train"):
        pack(dataset, options_of(8), dataset.folder / "plans" / name)
    with pytest.raises(UserError, match=f"cannot find the plan '{asked}'") as caught:
        open_plan(dataset, asked)
    assert caught.value.hint == hint


def test_a_dataset_shows_what_it_holds(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5], [2000])
    counts = f"<Dataset {str(tmp_path / 'out')!r}: 3 documents, 2,008 tokens in 2 shards"
    assert (repr(dataset), dataset.plans) == (f"{counts}, no plans>", [])
    pack(dataset, options_of(8))
    pack(dataset, options_of(16))
    assert dataset.plans == ["best-fit-16", "best-fit-8"]
    assert repr(dataset) == f"{counts}, plans best-fit-16, best-fit-8>"


def test_a_crash_in_the_middle_leaves_nothing(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [8], [8], [8])
    add = Ledger.add

    def crash(ledger: Ledger, packed: Any) -> None:
        if ledger.totals.documents == 2:
            raise KeyboardInterrupt
        add(ledger, packed)

    with monkeypatch.context() as patch:
        patch.setattr(packing_module.Ledger, "add", crash)
        with pytest.raises(KeyboardInterrupt):
            pack(dataset, options_of(8, window_sequences=1))
    assert list((tmp_path / "out").glob("plans/*")) == []
    assert len(pack(dataset, options_of(8, window_sequences=1)).plan) == 3


def test_a_crash_in_the_middle_keeps_the_plan_that_was_to_be_replaced(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [8], [8])
    before = pack(dataset, options_of(8)).plan.manifest

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(packing_module.Ledger, "add", crash)
    with pytest.raises(KeyboardInterrupt):
        pack(dataset, options_of(8, window_sequences=1), overwrite=True)
    assert [path.name for path in (tmp_path / "out" / "plans").iterdir()] == ["best-fit-8"]
    assert open_plan(dataset, "best-fit-8").manifest == before


def test_a_place_that_cannot_be_written_is_a_storage_error(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match="cannot write the plan"):
        pack(dataset, options_of(8), tmp_path / "file" / "plan")


def test_options_that_contradict_each_other_are_refused_together(
    corpus: Dataset, tmp_path: Path
) -> None:
    options = options_of(64, overlap=64, weight_by="id", segment_multiple=3)
    with pytest.raises(UserError, match="the plan has 3 problems") as caught:
        pack(corpus, options, tmp_path / "plan")
    assert [line.strip() for line in caught.value.why.splitlines()] == [
        "pack.overlap: got 64; must be less than 64",
        "pack.segment_multiple: got 3; must divide the sequence length 64",
        "pack.weight: must be given together with pack.weight_by",
    ]
    assert list(tmp_path.iterdir()) == []


# Plans that a build makes.


def test_a_build_makes_a_plan_when_it_knows_the_length(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    report = build_texts(tmp_path, tokenizer_path, ["ZZ", "ZZZZ"], sequence_length=8)
    (made,) = report.plans
    assert made.plan.folder == tmp_path / "out" / "plans" / "best-fit-8"
    assert rows(made.plan) == [[(0, 0, 3), (1, 0, 5)]]
    assert made.plan.manifest.dataset_id == report.dataset.manifest.dataset_id


def test_a_build_without_a_length_makes_none(tmp_path: Path, tokenizer_path: Path) -> None:
    assert build_texts(tmp_path, tokenizer_path, ["ZZ"]).plans == ()
    assert not (tmp_path / "out" / "plans").exists()


def test_the_same_build_again_finds_dataset_and_plan_complete(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    build_texts(tmp_path, tokenizer_path, ["ZZ", "ZZZZ"], sequence_length=8)
    before = contents(tmp_path / "out")
    again = build_texts(tmp_path, tokenizer_path, ["ZZ", "ZZZZ"], sequence_length=8)
    assert again.snapshot is None
    assert [made.already_there for made in again.plans] == [True]
    assert contents(tmp_path / "out") == before


def test_a_complete_dataset_is_given_further_plans_by_its_build(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    build_texts(tmp_path, tokenizer_path, ["ZZ", "ZZZZ"])
    for length in (8, 16):
        report = build_texts(tmp_path, tokenizer_path, ["ZZ", "ZZZZ"], sequence_length=length)
        assert report.snapshot is None
        assert [made.already_there for made in report.plans] == [False]
    assert sorted(path.name for path in (tmp_path / "out" / "plans").iterdir()) == [
        "best-fit-16",
        "best-fit-8",
    ]


def test_a_build_that_overwrites_replaces_the_plans_too(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    build_texts(tmp_path, tokenizer_path, ["ZZ"], sequence_length=8)
    shutil.rmtree(tmp_path / "data")
    report = build_texts(tmp_path, tokenizer_path, ["ZZZZ"], sequence_length=8, overwrite=True)
    assert [rows(made.plan) for made in report.plans] == [[[(0, 0, 5)]]]


def test_a_validation_subset_is_given_a_plan_of_its_own(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=200)
    report = tokenmill.build(
        tmp_path / "data",
        tokenizer_path,
        tmp_path / "out",
        workers=1,
        validation=0.2,
        sequence_length=64,
    )
    dataset = report.dataset
    subsets = [
        subset
        for shard in dataset.shards
        for subset in shard.documents().column("subset").to_pylist()
    ]
    plans = {made.plan.folder.name: made.plan for made in report.plans}
    assert list(plans) == ["best-fit-64-train", "best-fit-64-validation"]
    for name, plan in plans.items():
        subset = name.rpartition("-")[2]
        packed = Counter(document for row in rows(plan) for document, _, _ in row)
        assert sorted(packed) == [n for n, other in enumerate(subsets) if other == subset]
        assert plan.manifest.options["subset"] == subset


def test_a_build_for_one_subset_makes_one_plan(tmp_path: Path, tokenizer_path: Path) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=50)
    report = tokenmill.build(
        tmp_path / "data",
        tokenizer_path,
        tmp_path / "out",
        workers=1,
        validation=0.5,
        sequence_length=64,
        subset="validation",
    )
    assert [made.plan.folder.name for made in report.plans] == ["best-fit-64-validation"]


def test_a_build_whose_validation_subset_is_empty_succeeds(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    """A small share of few documents may be none of them."""
    report = build_texts(
        tmp_path, tokenizer_path, ["ZZ", "ZZZZ"], validation=1e-6, sequence_length=8
    )
    assert [made.plan.folder.name for made in report.plans] == ["best-fit-8-train"]


@pytest.mark.parametrize("weight", ["en", "en=much"])
def test_a_weight_that_is_none_is_found_before_anything_is_built(
    weight: str, tmp_path: Path, tokenizer_path: Path
) -> None:
    with pytest.raises(UserError, match="weight"):
        build_texts(
            tmp_path,
            tokenizer_path,
            ["ZZ"],
            sequence_length=8,
            weight_by="source",
            weight=[weight],
        )
    assert not (tmp_path / "out").exists()


def test_options_of_plans_are_no_part_of_what_a_dataset_is(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    ids = [
        build_texts(tmp_path / str(n), tokenizer_path, ["ZZ"], **options).dataset.manifest
        for n, options in enumerate([{}, {"sequence_length": 8, "at_cuts": "eos"}])
    ]
    assert ids[0] == ids[1]


# Cuts at boundaries. With the throwaway tokenizer every character below is a token.


def segment_texts(dataset: Dataset, plan: Plan) -> list[str]:
    """The texts of all segments, in the order of the documents."""
    folder = dataset.folder / "tokenizer"
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = []
    for document, start, length in sorted(segment for row in rows(plan) for segment in row):
        shard, index = dataset.locate(document)
        ids = shard.document(index)[start : start + length].tolist()
        texts.append(tokenizer.decode(ids, skip_special_tokens=False))
    return texts


def split_texts(
    tmp_path: Path, tokenizer_path: Path, texts: list[str], length: int, **options: Any
) -> list[str]:
    dataset = build_texts(tmp_path, tokenizer_path, texts).dataset
    chosen = options_of(length, long_documents="split-at-boundary", **options)
    return segment_texts(dataset, pack(dataset, chosen).plan)


@pytest.mark.parametrize(
    ("slack", "expected"),
    [
        (1, ["ZZZZZ.ZZ", "ZZZZZZ.Z", "Z" + EOS]),
        (2, ["ZZZZZ.ZZ", "ZZZZZZ.", "ZZ" + EOS]),
        (3, ["ZZZZZ.", "ZZZZZZZZ", ".ZZ" + EOS]),
    ],
)
def test_a_cut_moves_back_to_the_end_of_a_sentence_within_the_slack(
    slack: int, expected: list[str], tmp_path: Path, tokenizer_path: Path
) -> None:
    texts = ["ZZZZZ." + "ZZZZZZZZ.ZZ"]
    found = split_texts(tmp_path, tokenizer_path, texts, 8, slack=slack)
    assert found == expected


def test_the_last_boundary_within_the_slack_is_taken(tmp_path: Path, tokenizer_path: Path) -> None:
    found = split_texts(tmp_path, tokenizer_path, ["ZZ.Z!Z?ZZZZZZ"], 8, slack=8)
    assert found == ["ZZ.Z!Z?", "ZZZZZZ" + EOS]


def test_a_boundary_at_the_full_length_is_no_shorter(tmp_path: Path, tokenizer_path: Path) -> None:
    found = split_texts(tmp_path, tokenizer_path, ["ZZZZZZZ.ZZ"], 8, slack=8)
    assert found == ["ZZZZZZZ.", "ZZ" + EOS]


def test_without_a_boundary_the_cut_is_at_the_full_length(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    found = split_texts(tmp_path, tokenizer_path, ["Z" * 20], 8)
    assert found == ["Z" * 8, "Z" * 8, "ZZZZ" + EOS]


def test_what_fits_is_not_cut(tmp_path: Path, tokenizer_path: Path) -> None:
    assert split_texts(tmp_path, tokenizer_path, ["Z.ZZ.ZZ"], 8) == ["Z.ZZ.ZZ" + EOS]


@pytest.mark.parametrize(
    ("split_at", "expected"),
    [
        ("sentence", ["Z\nZZZ.", "ZZZZZZZZ", "Z" + EOS]),
        ("line", ["Z\n", "ZZZ.ZZZZ", "ZZZZZ" + EOS]),
    ],
)
def test_a_line_is_no_sentence(
    split_at: Any, expected: list[str], tmp_path: Path, tokenizer_path: Path
) -> None:
    texts = ["Z\nZZZ.ZZZZZZZZZ"]
    found = split_texts(tmp_path, tokenizer_path, texts, 8, slack=8, split_at=split_at)
    assert found == expected


def with_paragraphs(tokenizer_path: Path, path: Path) -> Path:
    """The tokenizer, with a token of two line ends, which its pattern does not part."""
    tokenizer = json.loads(tokenizer_path.read_text())
    tokenizer["pre_tokenizer"]["use_regex"] = False
    model = tokenizer["model"]
    model["vocab"]["ĊĊ"] = len(model["vocab"])
    model["merges"].insert(0, ["Ċ", "Ċ"])
    path.write_text(json.dumps(tokenizer))
    return path


@pytest.mark.parametrize(
    ("split_at", "expected"),
    [
        ("paragraph", ["Z\n\n", "Z.Z\nZZZZ", "ZZZ" + EOS]),
        ("line", ["Z\n\nZ.Z\n", "ZZZZZZZ" + EOS]),
        ("sentence", ["Z\n\nZ.Z\n", "ZZZZZZZ" + EOS]),
    ],
)
def test_a_paragraph_is_more_than_a_line(
    split_at: Any, expected: list[str], tmp_path: Path, tokenizer_path: Path
) -> None:
    tokenizer = with_paragraphs(tokenizer_path, tmp_path / "tokenizer.json")
    texts = ["Z\n\nZ.Z\nZZZZZZZ"]
    found = split_texts(tmp_path, tokenizer, texts, 8, slack=8, split_at=split_at)
    assert found == expected


def test_boundaries_are_found_in_every_shard_and_window(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    shards = [["ZZZZZZ.ZZZ"], ["ZZ", "ZZZZZ.ZZZZ"], ["ZZZZ.ZZZZZ"]]
    dataset = build_texts(tmp_path, tokenizer_path, *shards).dataset
    for window in (1, 10_000):
        options = options_of(
            8, long_documents="split-at-boundary", slack=8, window_sequences=window
        )
        plan = pack(dataset, options, tmp_path / str(window)).plan
        assert segment_texts(dataset, plan) == [
            "ZZZZZZ.",
            "ZZZ" + EOS,
            "ZZ" + EOS,
            "ZZZZZ.",
            "ZZZZ" + EOS,
            "ZZZZ.",
            "ZZZZZ" + EOS,
        ]
        assert_every_token_stands_once(plan, dataset)


def test_a_vocabulary_with_gaps_splits_at_boundaries(tmp_path: Path) -> None:
    ranks = tmp_path / "bytes.tiktoken"
    ranks.write_bytes(b"".join(b64encode(bytes([n])) + b" %d\n" % n for n in range(256)))
    (tmp_path / "specials.json").write_text(
        json.dumps({EOS: 300})
    )  # no token has an id from 256 to 299
    specials = {"pattern": QWEN2_SPLIT, "specials_from": tmp_path / "specials.json"}
    built = build_texts(tmp_path, ranks, ["Aa. Bb. Cccc. Ddd."], **specials)
    options = PackOptions(sequence_length=14, long_documents="split-at-boundary", slack=10)
    plan = pack(built.dataset, options, tmp_path / "plan").plan
    reference, ids = open_reference(built.dataset), built.dataset.shards[0].ids
    pieces = [part for sequence in range(len(plan)) for part in plan.segments(sequence)]
    shown = [reference.decode(ids[start : start + length]) for _, start, length in sorted(pieces)]
    assert shown == ["Aa. Bb. Cccc.", " Ddd." + EOS]


def boundary_tokens(dataset: Dataset, kind: str) -> list[str]:
    path = dataset.folder / "tokenizer" / "tokenizer.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    table = boundary_tables(dataset, kind)[0]
    assert table.shape == (dataset.manifest.tokenizer.largest_id + 1,)
    return sorted(tokenizer.decode([token]) for token in np.flatnonzero(table).tolist())


def test_the_table_of_boundaries_is_made_of_the_tokens_texts(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    tokenizer = with_paragraphs(tokenizer_path, tmp_path / "tokenizer.json")
    dataset = build_texts(tmp_path, tokenizer, ["ZZ"]).dataset
    line_ends = ["\n", "\n\n", "\n  ", "\n   "]
    assert boundary_tokens(dataset, "sentence") == sorted([*line_ends, "!", ".", "?"])
    assert boundary_tokens(dataset, "line") == sorted(line_ends)
    assert boundary_tokens(dataset, "paragraph") == ["\n\n"]


# Strategies beside each other.


def test_every_strategy_is_compared_and_nothing_written(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5], [2, 10])
    before = contents(tmp_path / "out")
    found = list(compare(dataset, options_of(8, smallest_bucket=2)))
    assert [row.packing for row in found] == list(STRATEGIES)
    assert {row.packing: row.objection for row in found if row.objection} == {}
    for row in found:
        assert row.figures is not None
        assert row.figures.tokens_in_sequences == 20
    assert contents(tmp_path / "out") == before
    assert not (tmp_path / "out" / "plans").exists()


def test_a_strategy_that_cannot_meet_the_options_says_why(corpus: Dataset) -> None:
    found = {row.packing: row for row in compare(corpus, options_of(96, at_cuts="eos"))}
    no_tokens = "cuts documents anywhere and adds no tokens there"
    assert {name: row.objection for name, row in found.items() if row.objection} == {
        "order-preserving": f"pack.at_cuts: order-preserving {no_tokens}",
        "concat-and-chunk": f"pack.at_cuts: concat-and-chunk {no_tokens}",
        "length-buckets": f"pack.at_cuts: length-buckets {no_tokens}; "
        "pack.smallest_bucket: must be a power of two, as must pack.sequence_length",
    }
    assert all((row.figures is None) == bool(row.objection) for row in found.values())


def test_a_comparison_gives_the_figures_of_the_plans(corpus: Dataset, tmp_path: Path) -> None:
    for row in compare(corpus, options_of(64, smallest_bucket=16, window_sequences=50)):
        options = options_of(64, packing=row.packing, smallest_bucket=16, window_sequences=50)
        assert row.figures == pack(corpus, options, tmp_path / row.packing).figures


def test_the_name_of_a_plan_is_strategy_length_and_subset(corpus: Dataset) -> None:
    names = [
        plan_folder(corpus, options).relative_to(corpus.folder).as_posix()
        for options in (
            options_of(64),
            options_of(4096, packing="next-fit"),
            options_of(64, subset="validation"),
        )
    ]
    assert names == ["plans/best-fit-64", "plans/next-fit-4096", "plans/best-fit-64-validation"]


def test_a_plan_in_its_dataset_has_a_name_that_can_be_copied(corpus: Dataset) -> None:
    with pytest.raises(UserError, match="a plan cannot have this name") as caught:
        pack(corpus, options_of(64), corpus.folder / "plans" / "aux")
    assert caught.value.why == "'aux' is the name of a device on Windows"


def test_a_plan_holds_its_options(corpus: Dataset, tmp_path: Path) -> None:
    options = options_of(64, packing="next-fit", max_segments=3, long_documents="keep-both-ends")
    plan = pack(corpus, options, tmp_path / "plan").plan
    assert msgspec.convert(plan.manifest.options, PackOptions) == options

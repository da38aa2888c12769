"""Plans of real datasets: every token once, windows of shards, figures that can be recounted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import tokenizers
from corpora import contents, write_corpus

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import OutputConflictError, StorageError, UserError
from tokenmill.packing import planning as packing_module
from tokenmill.packing.comparison import compare
from tokenmill.packing.options import Packing, PackOptions
from tokenmill.packing.planning import boundary_tables, pack, plan_folder
from tokenmill.read import units
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import PLAN_NAME, Plan, open_plan

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


# A plan of a dataset.


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


def test_dropping_everything_leaves_nothing_to_pack(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build_lengths(tmp_path, tokenizer_path, [3, 5])
    with pytest.raises(UserError, match="nothing to pack") as caught:
        pack(dataset, options_of(2, long_documents="drop"))
    assert caught.value.why == "every document is too long, and long documents are dropped"
    assert list((tmp_path / "out").glob("plans/*")) == []


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
    with pytest.raises(UserError) as caught:
        open_plan(dataset, "best-fit-4")
    only = "the only plan is best-fit-8; create one with tokenmill pack"
    assert caught.value.hint == only
    pack(dataset, options_of(16))
    (tmp_path / "out" / "plans" / ".best-fit-8.1.tmp").mkdir()
    (tmp_path / "out" / "plans" / ".best-fit-8.1.tmp" / PLAN_NAME).write_text("{}")
    with pytest.raises(UserError, match="cannot find the plan 'best-fit-4'") as caught:
        open_plan(dataset, "best-fit-4")
    assert caught.value.why == "the dataset has best-fit-16, best-fit-8"
    assert caught.value.hint == "choose one of these, or create one with tokenmill pack"


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


def test_the_same_build_again_finds_dataset_and_plan_complete(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    build_texts(tmp_path, tokenizer_path, ["ZZ", "ZZZZ"], sequence_length=8)
    before = contents(tmp_path / "out")
    again = build_texts(tmp_path, tokenizer_path, ["ZZ", "ZZZZ"], sequence_length=8)
    assert again.snapshot is None
    assert [made.already_there for made in again.plans] == [True]
    assert contents(tmp_path / "out") == before


def test_a_validation_subset_is_given_a_plan_of_its_own(
    tmp_path: Path, tokenizer_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=200)
    report = tokenmill.build(
        tmp_path / "data",
        tokenizer_path,
        tmp_path / "out",
        workers=1,
        validation=0.2,
        sequence_length=8,
    )
    short = "sequences of 8 tokens are very short; did you mean 8k?"
    assert [each for each in caplog.messages if "short" in each] == [short]
    dataset = report.dataset
    subsets = [
        subset
        for shard in dataset.shards
        for subset in shard.documents().column("subset").to_pylist()
    ]
    plans = {made.plan.folder.name: made.plan for made in report.plans}
    assert list(plans) == ["best-fit-8-train", "best-fit-8-validation"]
    for name, plan in plans.items():
        subset = name.rpartition("-")[2]
        packed = Counter(document for row in rows(plan) for document, _, _ in row)
        assert sorted(packed) == [n for n, other in enumerate(subsets) if other == subset]
        assert plan.manifest.options["subset"] == subset


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


@pytest.mark.parametrize(
    ("length", "warnings"),
    [
        (8, ["sequences of 8 tokens are very short; did you mean 8k?"]),
        (15, ["sequences of 15 tokens are very short; did you mean 15k?"]),
        (16, []),
    ],
)
def test_short_sequences_are_made_with_a_warning(
    length: int,
    warnings: list[str],
    corpus: tokenmill.Dataset,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    tokenmill.StreamPacker(length)
    tokenmill.pack(corpus, folder=tmp_path / "plan", sequence_length=length)
    assert caplog.messages == warnings

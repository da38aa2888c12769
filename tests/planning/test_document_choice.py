"""Which documents a plan packs, how often, and which of them never meet."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import UserError
from tokenmill.packing.document_choice import DocumentChoice
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import PlanReport, pack
from tokenmill.packing.strategies import contradictions
from tokenmill.read import units
from tokenmill.store.dataset import Dataset

LENGTH = 8


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 3,000 bytes become a shard each: no two of them go into a unit."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 4 << 10)
    monkeypatch.setattr(units, "PIECE_BYTES", 4 << 10)


def build(
    folder: Path, tokenizer_path: Path, *shards: list[tuple[int, str | None]], **options: Any
) -> Dataset:
    """Shards of documents of so many tokens, each with the value of its column `lang`."""
    (folder / "data").mkdir(parents=True)
    for number, rows in enumerate(shards):
        texts = ["Z" * (length - 1) for length, _ in rows]
        path = folder / "data" / f"{number}.jsonl"
        write_jsonl(path, texts, lang=[lang for _, lang in rows])
        path.write_bytes(path.read_bytes().ljust(3000, b"\n"))
    options = {"keep": ["lang"], "workers": 1, **options}
    dataset = tokenmill.build(folder / "data", tokenizer_path, folder / "out", **options).dataset
    assert len(dataset.shards) == len(shards)
    return dataset


def many(folder: Path, tokenizer_path: Path, **options: Any) -> Dataset:
    """Ninety documents of 3 tokens in three shards: de, en and null in turn."""
    languages = ["de", "en", None] * 10
    shard = [(3, language) for language in languages]
    return build(folder, tokenizer_path, shard, shard, shard, **options)


def made(dataset: Dataset, folder: Path, **options: Any) -> PlanReport:
    return pack(dataset, PackOptions(sequence_length=LENGTH, **options), folder)


def documents(report: PlanReport) -> list[list[int]]:
    """The documents of each sequence."""
    plan = report.plan
    return [[document for document, _, _ in plan.segments(n)] for n in range(len(plan))]


def times(report: PlanReport) -> Counter[int]:
    """How often each document stands in the plan; none is cut here."""
    return Counter(document for row in documents(report) for document in row)


def column(dataset: Dataset, name: str) -> list[Any]:
    return [
        value for shard in dataset.shards for value in shard.documents().column(name).to_pylist()
    ]


# Subsets.


@pytest.mark.parametrize(
    ("subset", "packed"), [(None, "train"), ("train", "train"), ("validation", "validation")]
)
def test_a_plan_is_of_one_subset_and_train_unless_told(
    subset: str | None, packed: str, tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = many(tmp_path, tokenizer_path, validation=0.4)
    subsets = column(dataset, "subset")
    assert 10 < subsets.count("validation") < 60
    report = made(dataset, tmp_path / "plan", subset=subset)
    assert times(report) == {n: 1 for n, name in enumerate(subsets) if name == packed}
    others = 90 - subsets.count(packed)
    figures = report.figures
    assert (figures.documents, figures.tokens) == (90 - others, 3 * (90 - others))
    assert figures.left_out_documents == {"other subset": others}
    assert figures.left_out_tokens == {"other subset": 3 * others}


@pytest.mark.parametrize("subset", ["test", "Train", "../x"])
def test_an_unknown_subset_is_refused(subset: str, tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build(tmp_path, tokenizer_path, [(3, "de")])
    with pytest.raises(UserError, match="nothing to pack") as caught:
        made(dataset, tmp_path / "plan", subset=subset)
    assert "other subset" in caught.value.why
    assert not (tmp_path / "plan").exists()


# Kinds.


def test_kinds_are_apart_in_every_window_and_packed_once(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = many(tmp_path, tokenizer_path)
    languages = column(dataset, "column.lang")
    for window in (1, 5, 10_000):
        report = made(dataset, tmp_path / str(window), separate_by="lang", window_sequences=window)
        assert times(report) == dict.fromkeys(range(90), 1)
        kinds = [{languages[document] for document in row} for row in documents(report)]
        assert {len(kind) for kind in kinds} == {1}
        assert set().union(*kinds) == {"de", "en", None}


def test_kinds_may_be_any_column_of_the_documents_table(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build(tmp_path, tokenizer_path, [(3, "de"), (3, "de")], [(3, "de")])
    found = {
        name: documents(made(dataset, tmp_path / name, separate_by=name))
        for name in ("source", "position", "id", "subset", "lang", "column.lang")
    }
    assert found == {
        "source": [[0, 1], [2]],
        "position": [[0, 2], [1]],
        "id": [[0, 1], [2]],
        "subset": [[0, 1], [2]],
        "lang": [[0, 1], [2]],
        "column.lang": [[0, 1], [2]],
    }


@pytest.mark.parametrize("option", ["separate_by", "weight_by"])
def test_an_unknown_column_is_refused_with_the_names_of_the_others(
    option: str, tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build(tmp_path, tokenizer_path, [(3, "de")])
    weights = {"weight": ["de=2"]} if option == "weight_by" else {}
    with pytest.raises(UserError, match="the documents table has no column 'tongue'") as caught:
        made(dataset, tmp_path / "plan", **{option: "tongue", **weights})
    assert caught.value.why == "the columns are source, position, id, subset, column.lang"
    assert caught.value.hint == "build the dataset with --keep to add columns"


def test_ranges_without_loss_are_no_kinds(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["ZZ", "ZZZ"], mask=[[[0, 1]], []])
    dataset = tokenmill.build(
        path, tokenizer_path, tmp_path / "out", workers=1, no_loss="mask"
    ).dataset
    with pytest.raises(UserError, match="no_loss"):
        made(dataset, tmp_path / "plan", separate_by="no_loss")


# Weights.


def test_a_weight_of_a_value_that_no_document_has_is_a_mistake(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = build(tmp_path, tokenizer_path, [(3, "de"), (4, "en")])
    with pytest.raises(UserError, match="a value that no document has") as caught:
        made(dataset, tmp_path / "plan", weight_by="lang", weight=["de=2", "it=7"])
    assert caught.value.why == "no document has 'it' in 'lang'"


@pytest.mark.parametrize(("weight", "copies"), [("0", 0), ("1", 1), ("2", 2), ("3.0", 3)])
def test_whole_weights_are_met_exactly(
    weight: str, copies: int, tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = many(tmp_path, tokenizer_path)
    report = made(dataset, tmp_path / "plan", weight_by="lang", weight=[f"de={weight}"])
    found = times(report)
    assert {found[n] for n in range(0, 90, 3)} == {copies}
    assert {found[n] for n in range(90) if n % 3} == {1}


def test_a_fraction_of_a_weight_is_that_share_of_the_documents(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = many(tmp_path, tokenizer_path)
    report = made(dataset, tmp_path / "plan", weight_by="lang", weight=["de=0.5", "en=2.5"])
    found = times(report)
    german = [found[n] for n in range(0, 90, 3)]
    english = [found[n] for n in range(1, 90, 3)]
    assert set(german) == {0, 1}
    assert 8 < sum(german) < 22
    assert set(english) == {2, 3}
    assert 68 < sum(english) < 82
    assert report.figures.left_out_documents == {"weight": german.count(0)}


def test_the_choice_by_weight_depends_on_nothing_else(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = many(tmp_path, tokenizer_path)
    options: list[dict[str, Any]] = [
        {},
        {"window_sequences": 1},
        {"packing": "next-fit"},
        {"separate_by": "lang"},
    ]
    found = [
        times(
            made(dataset, tmp_path / str(n), weight_by="lang", weight=["de=0.5", "en=1.5"], **more)
        )
        for n, more in enumerate(options)
    ]
    assert found[0] == found[1] == found[2] == found[3]


def test_weights_of_nothing_leave_nothing_to_pack(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = build(tmp_path, tokenizer_path, [(3, "de")])
    with pytest.raises(UserError, match="nothing to pack"):
        made(dataset, tmp_path / "plan", weight_by="lang", weight=["de=0"])


@pytest.mark.parametrize(
    "weight", ["de", "=2", "de=", "de=x", "de=-1", "de=nan", "de=inf", "de=1e6", "", "2"]
)
def test_other_weights_are_refused(weight: str) -> None:
    options = PackOptions(sequence_length=8, weight_by="lang", weight=["de=2", weight])
    problem = f"pack.weight: got {weight!r}; must be VALUE=WEIGHT, from 0 to 1000"
    assert list(map(str, contradictions(options))) == [problem]


# What is chosen in a shard.


def test_a_shard_of_several_sources_tells_them_apart(tmp_path: Path, tokenizer_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name, size in (("a", 3000), ("b", 1500), ("c", 1500)):
        path = write_jsonl(tmp_path / "data" / f"{name}.jsonl", ["ZZZ", "Z"])
        path.write_bytes(path.read_bytes().ljust(size, b"\n"))
    dataset = tokenmill.build(
        tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1
    ).dataset
    choice = DocumentChoice(dataset, PackOptions(sequence_length=LENGTH))
    found = [
        choice.choose(shard, first).sources.tolist()
        for shard, first in zip(dataset.shards, (0, 2), strict=True)
    ]
    assert found == [[0, 0], [1, 1, 2, 2]]

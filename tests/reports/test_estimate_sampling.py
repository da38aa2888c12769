"""Estimates of corpora whose files begin otherwise than they go on, with lengths of all sizes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tokenmill.api.building import recipe
from tokenmill.cli.estimate import interval_text
from tokenmill.core.errors import DataError
from tokenmill.read.source import Source
from tokenmill.reports import estimate as estimating
from tokenmill.reports import sampling
from tokenmill.reports.sampling import Effort, choose_sources

WORDS = "the quick brown fox jumps over a lazy dog".split()
NUM_SEEDS = 20
HERE = Path(__file__)


def uneven_texts(seed: int) -> list[str]:
    """Short texts first, then ones of heavy-tailed lengths, some of other words."""
    rng = np.random.default_rng(seed)
    lengths = [5] * 500 + (10 * rng.pareto(1.5, 1500) + 10).astype(int).clip(1, 3000).tolist()
    rare = rng.random(len(lengths)) < 0.2
    return [
        " ".join("zqxj" if is_rare else WORDS[word] for word in rng.integers(len(WORDS), size=size))
        for size, is_rare in zip(lengths, rare, strict=True)
    ]


CORPUS = {f"{number}": uneven_texts(number) for number in range(4)}


def write_lines(path: Path, texts: list[str]) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    path.with_suffix(".jsonl").write_text(lines)


@pytest.fixture
def little_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """About a third of the corpus is parsed, a tenth encoded."""
    monkeypatch.setitem(sampling.READ_BYTES, "none", 700_000)
    monkeypatch.setattr(estimating, "EFFORT", Effort(4096, 256, 150_000, 300_000))


def test_an_interval_holds_the_truth_for_19_of_20_seeds(
    tmp_path: Path,
    tokenizer_path: Path,
    reference: Callable[[str], list[int]],
    little_effort: None,
) -> None:
    for name, texts in CORPUS.items():
        write_lines(tmp_path / name, texts)
    all_texts = [text for texts in CORPUS.values() for text in texts]
    documents = len(all_texts)
    tokens = sum(len(reference(text)) + 1 for text in all_texts)
    wanted = recipe([str(tmp_path / "*.*")], str(tokenizer_path), "(not written)", workers=1)
    found = [estimating.estimate(wanted, seed=seed) for seed in range(NUM_SEEDS)]
    assert max(one.sample_documents for one in found) < documents
    for name, true, most in (("documents", documents, 0.1), ("tokens", tokens, 0.1)):
        mean = np.mean([getattr(one, name) for one in found])
        intervals = [getattr(one, f"{name}_interval") for one in found]
        assert abs(mean / true - 1) < most / 2, name
        assert sum(low <= true <= high for low, high in intervals) >= NUM_SEEDS - 1, name
        assert sum(abs(getattr(one, name) / true - 1) < most for one in found) >= NUM_SEEDS - 1


def test_an_estimate_is_a_function_of_its_seed(
    tmp_path: Path, tokenizer_path: Path, little_effort: None
) -> None:
    write_lines(tmp_path / "a", CORPUS["0"] * 4)
    wanted = recipe([str(tmp_path)], str(tokenizer_path), "(not written)", workers=1)
    first, again, other = (estimating.estimate(wanted, seed=seed).tokens for seed in (1, 1, 2))
    assert first == again != other


def test_large_sources_are_certain_and_others_chosen_in_proportion_to_their_size() -> None:
    sizes = [10_000_000, *[1000] * 2000, *[3000] * 2000]
    sources = [
        Source(name=str(index), place="local", location="", version=0, num_bytes=size, path=HERE)
        for index, size in enumerate(sizes)
    ]
    chosen, chances = choose_sources(sources, np.random.default_rng(0))
    by_size = {source.num_bytes: chance for source, chance in zip(chosen, chances, strict=True)}
    assert len(chosen) == sampling.MAX_SOURCES
    assert by_size[10_000_000] == 1
    assert by_size[3000] == pytest.approx(3 * by_size[1000])
    weights = sum(1 / chance for chance in chances)
    assert weights == pytest.approx(len(sizes), rel=0.1)


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (409_000_000, (396_000_000, 421_000_000), "409 M (396 to 421 M)"),
        (70_123, (69_900, 70_400), "70.1 k (69.9 to 70.4 k)"),
        (37_092, (37_092, 37_092), "37,092"),
        (5, (3, 7), "5 (3 to 7)"),
    ],
)
def test_an_interval_has_the_unit_of_its_value(
    value: int, interval: tuple[int, int], text: str
) -> None:
    assert interval_text(value, interval) == text


def test_damaged_files_are_counted_and_if_nothing_else_is_there_named(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    write_lines(tmp_path / "whole", ["one", "two"])
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(gzip.compress(b'{"text": "three"}\n')[:-9])
    both = estimating.estimate(recipe([str(tmp_path)], str(tokenizer_path), "(not written)"))
    assert (both.documents, both.sample_damaged) == (2, 1)
    with pytest.raises(DataError) as caught:
        estimating.estimate(recipe([str(torn)], str(tokenizer_path), "(not written)"))
    assert caught.value.where == str(torn)

"""Lengths of files: all of them as a build has them, or a sample whose error holds."""

from __future__ import annotations

import dataclasses
import gzip
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill.core.errors import UserError
from tokenmill.reports.lengths import sample
from tokenmill.reports.sampling import Effort


def texts_of_many_lengths(count: int) -> list[str]:
    rng = random.Random(7)
    return ["w " * int(rng.lognormvariate(3, 1) + 1) for _ in range(count)]


def test_files_and_the_dataset_of_them_have_the_same_lengths(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["", *TEXTS])
    tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1)
    lengths = [8, 16]
    of_files = tokenmill.analyze(path, tokenizer_path, sequence_lengths=lengths)
    of_dataset = tokenmill.analyze(tmp_path / "out", sequence_lengths=lengths)
    assert of_files.sampled is not None
    assert of_files.sampled.is_whole
    assert of_dataset == dataclasses.replace(of_files, corpus=of_dataset.corpus, sampled=None)
    dataset = tokenmill.open(tmp_path / "out")
    assert (of_dataset.documents, of_dataset.tokens) == (len(TEXTS), dataset.num_tokens)
    assert tokenmill.analyze(dataset, sequence_lengths=lengths) == of_dataset


@pytest.fixture
def small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    effort = Effort(1 << 10, 1, encoded_characters=24 << 10, parsed_bytes=24 << 10)
    monkeypatch.setattr(sample, "EFFORT", effort)


@pytest.mark.usefixtures("small_samples")
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet"])
def test_the_truth_is_within_the_error_of_nearly_all_samples(
    kind: str, tmp_path: Path, tokenizer_path: Path
) -> None:
    texts = texts_of_many_lengths(3000)
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"text": texts}), path, row_group_size=200)
    else:
        write_jsonl(path, texts)
    if kind == "jsonl.gz":
        path.write_bytes(gzip.compress(path.read_bytes()))
    lengths = [len(text) // 2 for text in texts]
    hits = {"documents": 0, "cut share": 0}
    for seed in range(10):
        found = tokenmill.analyze(path, tokenizer_path, sequence_lengths=[64], seed=seed)
        assert found.sampled is not None
        assert found.margins is not None
        assert not found.sampled.is_whole
        assert found.sampled.documents < 1500
        hits["documents"] += abs(found.documents - 3000) <= max(found.margins.documents, 1)
        truth = sum(tokens_of(length) > 64 for length in lengths) / 3000
        hits["cut share"] += abs(found.rows[0].cut_share - truth) <= found.margins.cut_shares[64]
    assert min(hits.values()) >= 8, hits


def tokens_of(words: int) -> int:
    """Each word and each space is a token; EOS is one more."""
    return 2 * words + 1


@pytest.mark.usefixtures("small_samples")
def test_the_same_seed_draws_the_same_sample(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", texts_of_many_lengths(1000))
    first, again, other = (
        tokenmill.analyze(path, tokenizer_path, seed=seed).tokens for seed in (1, 1, 2)
    )
    assert first == again != other


def test_what_cannot_be_analysed_is_refused(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    with pytest.raises(UserError, match="no tokenizer given"):
        tokenmill.analyze(path)
    with pytest.raises(UserError, match="an input does not exist"):
        tokenmill.analyze(tmp_path / "corpsu")
    with pytest.raises(UserError, match="got 1; must be 2 or more, because one token leaves none"):
        tokenmill.analyze(path, tokenizer_path, sequence_lengths=[1])
    with pytest.raises(UserError, match=r"sequence_length: unknown .*mean sequence_lengths"):
        tokenmill.analyze(path, tokenizer_path, sequence_length=512)
    with pytest.raises(UserError, match="cannot find a model shape named"):
        tokenmill.analyze(path, tokenizer_path, model="9z")
    tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1)
    with pytest.raises(UserError, match="memroy: unknown option; did you mean activation_memory"):
        tokenmill.analyze(tmp_path / "out", activation_memroy="24GB")
    with pytest.raises(UserError, match="activation_memory: got 'much'; must be a size such as 2G"):
        tokenmill.analyze(tmp_path / "out", activation_memory="much")
    assert (
        tokenmill.analyze(tmp_path / "out", activation_memory="24GB").budget.activation_memory
        == 24 * 10**9
    )
    with pytest.raises(UserError, match="a dataset takes no tokenizer"):
        tokenmill.analyze(tmp_path / "out", tokenizer_path)
    empty = write_jsonl(tmp_path / "b.jsonl", [""])
    with pytest.raises(UserError, match="found no document"):
        tokenmill.analyze(empty, tokenizer_path)

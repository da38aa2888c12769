"""Packed rows: whole documents apart from each other, and nothing lost."""

from __future__ import annotations

from typing import Any

import datasets
import pytest
from hf_kit import TEXTS, Letters, bare_tokenizer, dataset_of, fast_tokenizer, options

from tokenmill.core.errors import UserError
from tokenmill.hf import CausalLMTokenizer, PackedRowsCollator
from tokenmill.hf import rows as hf_rows

A, B, C, PAD = ord("a"), ord("b"), ord("c"), 1000


def made(length: int, packing: str = "best-fit", **others: Any) -> CausalLMTokenizer:
    return CausalLMTokenizer(options(length, packing=packing, **others), Letters())


def segments(rows: datasets.Dataset) -> list[list[int]]:
    """The tokens of each segment, by `seq_lengths`; padding is left out."""
    found = []
    for row in rows:
        start = 0
        for length in row["seq_lengths"]:
            part = slice(start, start + length)
            assert row["position_ids"][part] == [*range(length)]
            if (
                any(label != -100 for label in row["labels"][part])
                or PAD not in row["input_ids"][part]
            ):
                found.append(row["input_ids"][part])
                assert row["labels"][part] == [-100, *row["input_ids"][part][1:]]
            start += length
        assert start == len(row["input_ids"])
    return found


def test_documents_share_rows_and_are_kept_apart() -> None:
    (row,) = made(8, append_eos=True).tokenize(dataset_of(["ab", None, "", "cbc"]))
    assert row == {
        "input_ids": [A, B, PAD, C, B, C, PAD, PAD],
        "labels": [-100, B, PAD, -100, B, C, PAD, -100],
        "position_ids": [0, 1, 2, 0, 1, 2, 3, 0],
        "seq_lengths": [3, 4, 1],
    }


@pytest.mark.parametrize(
    "packing", ["best-fit", "first-fit", "next-fit", "order-preserving", "concat-and-chunk",
                "shortest-pack-first", "longest-pack-first", "length-buckets", "balanced",
                "streaming"]
)  # fmt: skip
def test_no_strategy_loses_a_token(packing: str) -> None:
    others = {"context_length": 256} if packing == "length-buckets" else {}
    tokenizer = CausalLMTokenizer({**options(32, packing=packing), **others}, Letters())
    texts = [text * 3 for text in TEXTS]
    rows = tokenizer.tokenize(dataset_of(texts))
    expected = sorted(min(ord(c), 999) for text in texts for c in text)
    assert sorted(i for part in segments(rows) for i in part) == expected
    assert tokenizer.summary.tokens == len(expected)


def test_long_documents_are_split_and_counted() -> None:
    tokenizer = made(4)
    rows = tokenizer.tokenize(dataset_of(["abcab", "c"]))
    assert sorted(segments(rows)) == [[A, B, C, A], [B], [C]]
    assert tokenizer.summary.cut == 1
    assert "1 documents are longer than a row" in str(tokenizer.summary)


def test_windows_of_long_documents_may_overlap() -> None:
    texts = dataset_of(["abcabc"])
    rows = made(4, overlap=2).tokenize(texts)
    assert sorted(segments(rows)) == [[A, B, C, A], [C, A, B, C]]
    once = made(4, overlap=2, overlap_in_loss=False).tokenize(texts)
    assert sorted(row["labels"] for row in once) == [[-100, -100, B, C], [-100, B, C, A]]


def test_special_tokens_stand_around_each_document() -> None:
    tokenizer = CausalLMTokenizer(options(16, packing="next-fit"), fast_tokenizer(1, 1))
    (row,) = tokenizer.tokenize(dataset_of(["a", "b"]))
    a, b = (bare_tokenizer().encode(text).ids[0] for text in "ab")
    assert row["input_ids"] == [1, a, 2, 1, b, 2, *[0] * 10]
    assert row["seq_lengths"] == [3, 3, 10]


def test_rows_do_not_depend_on_the_size_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_rows, "WINDOW_TOKENS", 500)
    monkeypatch.setattr(hf_rows, "LEAST_SEQUENCES", 1)
    texts = dataset_of([text * (i % 5) for i, text in enumerate(TEXTS * 20)])
    one, many = (made(16, batch_size=size).tokenize(texts) for size in (1, 1000))
    assert one[:] == many[:]


def test_streams_and_subclasses_pack_each_batch_by_itself() -> None:
    class Masked(CausalLMTokenizer):
        def _tokenize_function(self, batch: Any) -> Any:
            columns = super()._tokenize_function(batch)
            columns["labels"][:, :2] = -100
            return columns

    texts = dataset_of(["ab", "c", "abc", "b"])
    config = options(4, packing="best-fit", batch_size=2)
    rows = CausalLMTokenizer(config, Letters()).tokenize(texts.to_iterable_dataset())
    found = [[row[name].tolist() for name in ("input_ids", "seq_lengths")] for row in rows]
    assert found == [[[A, B, C, PAD], [2, 1, 1]], [[A, B, C, B], [3, 1]]]
    masked = Masked(config, Letters()).tokenize(texts)
    assert masked["seq_lengths"][:] == [[2, 1, 1], [3, 1]]
    assert masked["labels"][:] == [[-100] * 4, [-100, -100, C, -100]]


def test_rows_go_through_the_collator() -> None:
    rows = made(8, columns=["input_ids", "labels", "position_ids"]).tokenize(
        dataset_of(["ab", "cb"])
    )
    batch = PackedRowsCollator()(list(rows))
    assert batch["cu_seq_lens_q"].tolist() == [0, 2, 4, 8]


def test_a_mask_beside_packed_documents_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    made(8, columns=["input_ids", "attention_mask"])
    (line,) = [line for line in caplog.messages if "attention_mask" in line]
    assert "documents in a row attend to each other" in line


def test_a_strategy_that_cannot_do_it_is_refused() -> None:
    with pytest.raises(UserError, match="long_documents: concat-and-chunk cuts documents"):
        made(8, "concat-and-chunk", overlap=2)


def test_trl_finds_the_documents_by_seq_lengths() -> None:
    trl = pytest.importorskip("trl.trainer.sft_trainer")
    rows = made(8).tokenize(dataset_of(["ab", "cbc", "abcab", "cc"]))
    collate = trl.DataCollatorForLanguageModeling(pad_token_id=PAD, padding_free=True)
    batch = collate(list(rows))
    ours = PackedRowsCollator()(list(rows))
    assert batch["position_ids"][0].tolist() == ours["position_ids"].flatten().tolist()
    assert batch["labels"][0].tolist() == ours["labels"].flatten().tolist()
    assert "attention_mask" not in batch

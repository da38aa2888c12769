"""Windows, padding and labels against what tokenizers itself makes of the same ids."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from tokenmill.core.errors import UserError
from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.hf.columns import RowColumns, RowFormat
from tokenmill.hf.rows import WindowRule

PAD, BOS, EOS, END = 0, 1, 2, 3


def batch_of(*lengths: int) -> TokenBatch:
    """Documents of these lengths with ids 10, 11, 12..."""
    offsets = offsets_from_lengths(lengths)
    return TokenBatch(np.arange(10, 10 + offsets[-1], dtype=np.uint32), offsets)


def rows_of(rule: WindowRule, tokens: TokenBatch) -> RowColumns:
    return RowFormat(rule.context_length).filled(rule.cut(tokens))


def rows_by_tokenizers(tokens: TokenBatch, rule: WindowRule) -> dict[str, list[list[int]]]:
    """The same by `tokenizers`, for which every id is a word that is its number."""
    numbers = {str(i): i for i in range(10 + len(tokens.ids))}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(numbers, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = " ".join(["1"] * len(rule.prefix) + ["$A"] + ["2"] * len(rule.suffix))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, special_tokens=[("1", BOS), ("2", EOS)]
    )
    side = "left" if rule.truncates_left else "right"
    tokenizer.enable_truncation(rule.context_length, stride=rule.overlap, direction=side)
    side = "left" if rule.pads_left else "right"
    tokenizer.enable_padding(direction=side, pad_id=PAD, length=rule.context_length)
    found: dict[str, list[list[int]]] = {"input_ids": [], "attention_mask": []}
    for start, stop in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True):
        if start == stop:
            continue
        ids = tokens.ids[start:stop].tolist() + ([] if rule.eos_id is None else [rule.eos_id])
        first = tokenizer.encode(" ".join(map(str, ids)))
        for encoding in (first, *first.overflowing):
            found["input_ids"].append(encoding.ids)
            found["attention_mask"].append(encoding.attention_mask)
    return found


@st.composite
def rules(draw: Any) -> WindowRule:
    prefix = (BOS,) * draw(st.integers(0, 2))
    suffix = (EOS,) * draw(st.integers(0, 2))
    content = draw(st.integers(1, 9))
    return WindowRule(
        content + len(prefix) + len(suffix),
        draw(st.integers(0, content - 1)),
        PAD,
        prefix,
        suffix,
        pads_left=draw(st.booleans()),
        truncates_left=draw(st.booleans()),
        eos_id=draw(st.sampled_from([None, END, PAD])),
    )


@settings(deadline=None, max_examples=300)
@given(rule=rules(), lengths=st.lists(st.integers(0, 40), max_size=6))
def test_rows_are_those_of_tokenizers(rule: WindowRule, lengths: list[int]) -> None:
    tokens = batch_of(*lengths)
    rows = rows_of(rule, tokens)
    expected = rows_by_tokenizers(tokens, rule)
    assert rows.input_ids.tolist() == expected["input_ids"]
    assert rows.attention_mask.tolist() == expected["attention_mask"]
    labels = np.where(rows.attention_mask == 1, rows.input_ids, -100)
    assert np.array_equal(rows.labels, labels)


def test_a_real_end_of_document_token_keeps_its_label_where_padding_has_the_same_id() -> None:
    tokens = TokenBatch(np.array([7, EOS], np.uint32), np.array([0, 2]))
    rows = rows_of(WindowRule(4, 0, EOS), tokens)
    assert rows.input_ids.tolist() == [[7, EOS, EOS, EOS]]
    assert rows.labels.tolist() == [[7, EOS, -100, -100]]


def test_the_end_of_a_document_is_in_the_window_that_holds_its_last_token() -> None:
    rule = WindowRule(4, 2, PAD, eos_id=END)
    assert rows_of(rule, batch_of(4)).input_ids.tolist() == [[10, 11, 12, 13], [12, 13, 3, 0]]
    assert rows_of(rule, batch_of(3, 0, 1)).input_ids.tolist() == [[10, 11, 12, 3], [13, 3, 0, 0]]
    from_the_end = WindowRule(4, 2, PAD, truncates_left=True, eos_id=END)
    assert rows_of(from_the_end, batch_of(4)).input_ids.tolist() == [
        [11, 12, 13, 3],
        [10, 11, 12, 0],
    ]


def test_documents_without_tokens_give_no_rows() -> None:
    rows = rows_of(WindowRule(4, 0, PAD), batch_of(0, 2, 0, 0))
    assert rows.input_ids.tolist() == [[10, 11, 0, 0]]
    assert rows_of(WindowRule(4, 0, PAD), batch_of()).labels.shape == (0, 4)


def test_windows_can_be_filled_in_parts() -> None:
    rule = WindowRule(700, 3, PAD, (BOS,))  # several blocks of rows
    tokens = batch_of(*range(0, 60_000, 777))
    whole, windows = rows_of(rule, tokens), rule.cut(tokens)
    parts = RowFormat(700).empty(len(windows))
    cuts = [0, 1, 150, len(windows)]
    for start, stop in itertools.pairwise(cuts):
        windows.fill(parts[start:stop], start)
    assert np.array_equal(parts.input_ids, whole.input_ids)
    assert np.array_equal(parts.attention_mask, whole.attention_mask)
    assert np.array_equal(parts.labels, whole.labels)


def test_an_overlap_must_leave_room_for_new_tokens() -> None:
    with pytest.raises(UserError, match=r"(?s)overlap of 3 .* holds 3 tokens .* 2 special tokens"):
        WindowRule(5, 3, PAD, (BOS,), (EOS,))

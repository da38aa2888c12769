"""Splits whose numbers are cut otherwise."""

from __future__ import annotations

import pytest

from tokenmill.core.errors import UserError
from tokenmill.encode.splitters import LIBRARY, load_splitter, word_splitters
from tokenmill.encode.words.splits import Digits, Split, named_split, with_digits


def words(split: Split, text: str, name: str = LIBRARY) -> list[str]:
    """The words of one text."""
    found = load_splitter(split, name, 1 << 20).split([text])
    data = found.data.tobytes()
    return [data[a:b].decode() for a, b in zip(found.edges, found.edges[1:], strict=False)]


@pytest.mark.parametrize(
    ("name", "digits", "expected"),
    [
        ("llama3", "keep", ["x", " ", "123", "456", "7", "b", "12"]),
        ("llama3", "single", ["x", " ", *"1234567", "b", *"12"]),
        ("llama3", "groups-right", ["x", " ", "1", "234", "567", "b", "12"]),
        ("o200k", "groups-right", ["x", " ", "1", "234", "567", "b", "12"]),
        ("deepseek3", "groups-right", ["x", " ", "1", "234", "567", "b", "12"]),
        ("qwen2", "groups-right", ["x", " ", "1", "234", "567", "b", "12"]),
        ("gpt2", "keep", ["x", " 1234567", "b", "12"]),
        ("gpt2", "single", ["x", " ", *"1234567", "b", *"12"]),
        ("gpt2", "groups-right", ["x", " ", "1", "234", "567", "b", "12"]),
        ("metaspace", "single", ["▁x", "▁", *"1234567", "b", *"12"]),
        ("metaspace", "groups-right", ["▁x", "▁", "1", "234", "567", "b", "12"]),
        ("bert", "groups-right", ["x", "1", "234", "567", "b", "12"]),
    ],
)
def test_numbers_are_cut(name: str, digits: Digits, expected: list[str]) -> None:
    assert words(with_digits(named_split(name), digits), "x 1234567b12") == expected


def test_a_split_that_cuts_so_already_stays_as_it_is() -> None:
    assert with_digits(named_split("qwen2"), "single") == named_split("qwen2")
    assert with_digits(named_split("starcoder"), "single") == named_split("starcoder")
    assert with_digits(named_split("gpt2"), "keep") == named_split("gpt2")
    for name in ("gpt2", "llama3", "metaspace"):
        grouped = with_digits(named_split(name), "groups-right")
        assert with_digits(grouped, "groups-right") == grouped


def test_single_digits_cannot_be_grouped() -> None:
    with pytest.raises(UserError, match="cannot group the digits of the split 'starcoder'"):
        with_digits(named_split("starcoder"), "groups-right")


@pytest.mark.parametrize("name", ["gpt2", "llama3", "o200k", "deepseek3"])
def test_groups_from_the_right_may_be_cut_at_spaces(name: str) -> None:
    split = with_digits(named_split(name), "groups-right")
    assert "memo" in word_splitters(split)
    text = "a 1234567 12345b 1,234.50 ١٢٣٤٥ Ⅻ½ 00001  77777\n4444 x1234 (1234)"
    assert words(split, text, "memo") == words(split, text)

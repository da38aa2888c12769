"""The words of SentencePiece's splits are those that SentencePiece itself would cut."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tokenmill.encode.splitters import load_splitter, word_splitters
from tokenmill.encode.words.sentencepiece import RULES, Normalizer, named_normalizer
from tokenmill.encode.words.splits import sentencepiece_split

sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = [
    *(
        "",
        " ",
        "a",
        "  a  b ",
        "a\n\n b \n",
        " \ta",
        "\na\n",
        "a  \n",
        "x y\r\nz",
        "a \u3000 b\u3000",
    ),
    *(
        "ﬁne №1 ① Ａ",
        "e\u0301 x\u0302",
        "İi ẞ",
        "ไทยนำ",
        "한국어 각",
        "日本語　の",
        "\ufeffa\u200bb\u00ad",
        "a\0b",
    ),
]


def by_the_library(normalizer: Normalizer, text: str) -> list[str]:
    found = sentencepiece.SentencePieceNormalizer(
        rule_name=normalizer.name,
        add_dummy_prefix=normalizer.add_prefix,
        remove_extra_whitespaces=normalizer.join_spaces,
        escape_whitespaces=True,
    ).normalize(text)
    first, *others = found.split("▁")
    return [first] * bool(first) + ["▁" + other for other in others]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("add_prefix", [True, False])
@pytest.mark.parametrize("join_spaces", [True, False])
def test_words_are_those_of_the_library(rule, add_prefix, join_spaces):
    normalizer = named_normalizer(rule, add_prefix, join_spaces)
    split = sentencepiece_split(normalizer)
    texts = TEXTS
    if not join_spaces:  # then a first space counts as the prefix, and \r\n is one character
        texts = [text for text in texts if text[:1] not in " \n\ufeff" and "\r" not in text]
    for name in word_splitters(split):
        found = load_splitter(split, name, 1 << 20).split(texts)
        data, edges = found.data.tobytes(), found.edges
        words = [data[a:b].decode() for a, b in pairwise(edges)]
        bounds = pairwise(found.words_before)
        assert [words[a:b] for a, b in bounds] == [by_the_library(normalizer, t) for t in texts]


@pytest.mark.parametrize("rule", RULES)
def test_a_normalizer_is_read_as_it_is_written(rule):
    normalizer = named_normalizer(rule, add_prefix=False)
    assert Normalizer.read(normalizer.message()) == normalizer


def test_the_library_reads_what_is_written():
    message = named_normalizer("nfkc", join_spaces=False).message()
    library = sentencepiece.SentencePieceNormalizer(normalizer_spec=message)
    assert library.normalize("ﬁ  x") == "▁fi▁▁x"


def test_default_splits_are_fast():
    assert word_splitters(sentencepiece_split(named_normalizer("nmt_nfkc")))[0] != "library"
    assert word_splitters(sentencepiece_split(named_normalizer("identity")))[0] != "library"

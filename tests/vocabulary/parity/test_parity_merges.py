"""Parity-aware merges equal those of the `tokenizers` library."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

from tokenmill.core.errors import UserError
from tokenmill.encode import encodings
from tokenmill.encode.words.counts import WordCounts
from tokenmill.vocabulary.bpe.symbols import byte_symbols
from tokenmill.vocabulary.parity.options import ParityMerges, ParityOptions
from tokenmill.vocabulary.parity.parity_merges import learn_parity_merges

BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False)
BYTES = {character: byte for byte, character in enumerate(encodings.byte_symbols())}
Texts = Sequence[str]


def byte_words(texts: Iterable[str]) -> WordCounts:
    counts: Counter[bytes] = Counter()
    for text in texts:
        for word, _ in BYTE_LEVEL.pre_tokenize_str(text):
            counts[bytes(BYTES[character] for character in word)] += 1
    return WordCounts.of(counts)


def learnt(
    groups: Sequence[Texts],
    dev: Sequence[Texts] | None = None,
    ratios: Sequence[float] | None = None,
    **options: Any,
) -> ParityMerges:
    """Merges of languages "0", "1", ...; they are their own development texts if none are given."""
    words = {str(i): byte_words(texts) for i, texts in enumerate(groups)}
    others = None if dev is None else {str(i): byte_words(texts) for i, texts in enumerate(dev)}
    wanted = None if ratios is None else {str(i): ratio for i, ratio in enumerate(ratios)}
    if others is None and wanted is None:
        others = words
    return learn_parity_merges(
        words, byte_symbols(), ParityOptions(**options), dev=others, ratios=wanted
    )


def spelled(found: ParityMerges) -> list[str]:
    strings = found.merges.strings()
    return [f"{strings[left]} {strings[right]}" for left, right in found.merges.pairs.tolist()]


def library(
    groups: Sequence[Texts],
    dev: Sequence[Texts] | None = None,
    ratios: Sequence[float] | None = None,
    **options: Any,
) -> list[str]:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = BYTE_LEVEL
    options["window_size"] = options.pop("window", 100)
    trainer = trainers.ParityBpeTrainer(
        initial_alphabet=BYTE_LEVEL.alphabet(), show_progress=False, ratio=ratios, **options
    )
    more = {} if dev is None else {"dev_iterators": [iter(texts) for texts in dev]}
    trainer.train_from_iterator(tokenizer, [iter(texts) for texts in groups], **more)
    return [" ".join(merge) for merge in json.loads(tokenizer.to_str())["model"]["merges"]]


def test_the_language_with_more_tokens_has_the_turn_and_larger_strings_come_first() -> None:
    found = learnt([["aabb"] * 10, ["ccdd"] * 10], num_merges=6)
    assert spelled(found) == ["b b", "d d", "a bb", "c dd", "a abb", "c cdd"]
    assert found.turns.tolist() == [0, 1, 0, 1, 0, 1]
    assert found.tokens.tolist() == [[40, 10], [40, 10]]


def test_development_texts_decide_instead() -> None:
    found = learnt([["ab"] * 10, ["cd"] * 5], [["ab"], ["cd"] * 10], num_merges=2)
    assert spelled(found) == ["c d", "a b"]
    assert found.tokens.tolist() == [[2, 1], [20, 10]]


def test_a_window_passes_over_who_had_too_many_turns() -> None:
    groups = [["aabb"] * 100, ["ccdd"]]
    base = learnt(groups, num_merges=6)
    window = learnt(groups, num_merges=6, variant="window", window=2, alpha=1.0)
    assert spelled(base) == ["b b", "a bb", "a abb", "d d", "c dd", "c cdd"]
    assert spelled(window) == ["b b", "a bb", "d d", "a abb", "c dd", "c cdd"]


def test_ratios_are_wanted_compressions() -> None:
    found = learnt([["aabb"] * 10, ["ccdd"] * 10], ratios=[1.0, 2.0], num_merges=4)
    assert spelled(found) == ["d d", "c dd", "b b", "c cdd"]


def test_global_merges_add_up_all_languages() -> None:
    groups = [["ab"] * 5 + ["cd"], ["ab"] + ["cd"] * 5]
    assert spelled(learnt(groups, num_merges=2)) == ["a b", "c d"]
    together = learnt(groups, num_merges=2, global_merges=1)
    assert spelled(together) == ["c d", "a b"]
    assert together.turns.tolist() == [-2, 0]


def test_a_language_without_pairs_is_skipped() -> None:
    found = learnt([["ab"] * 10, ["cdef"] * 10], num_merges=10)
    assert spelled(found) == ["e f", "d ef", "a b", "c def"]
    assert found.exhausted == ("0", "1")


def test_masses_are_occurrences_over_all_languages() -> None:
    found = learnt([["ab", "ab"], ["ab", "cd"]], [["ab"], ["cd"]], num_merges=1)
    assert spelled(found) == ["a b"]
    assert found.merges.masses.tolist() == [3]
    assert found.merges.num_tokens() == len("ababab") + len("cd") - 3


@pytest.mark.parametrize("ratios", [None, [1.0, 2.0]])
def test_texts_without_words_have_no_merges(ratios: list[float] | None) -> None:
    assert spelled(learnt([[""], []], ratios=ratios, num_merges=5)) == []


def tiny_texts(letters: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.text(f"{letters} ", max_size=12), min_size=1, max_size=4)


@given(
    groups=st.lists(
        st.sampled_from(["ab", "aab", "añ", "xyz"]).flatmap(tiny_texts), min_size=1, max_size=4
    ),
    data=st.data(),
    num_merges=st.integers(1, 25),
    global_merges=st.sampled_from([0, 0, 3]),
    min_frequency=st.sampled_from([0, 0, 2]),
    max_token_length=st.sampled_from([None, None, 4]),
    variant=st.sampled_from(["base", "window"]),
)
@settings(max_examples=150, deadline=None)
def test_merges_of_tiny_corpora_are_the_library_s(
    groups: list[list[str]], data: st.DataObject, **options: Any
) -> None:
    number = len(groups)
    lists = st.lists(tiny_texts("abñxyz"), min_size=number, max_size=number)
    ratio_lists = st.lists(st.sampled_from([0.5, 1.0, 1.3, 2.0]), min_size=number, max_size=number)
    dev, ratios = data.draw(st.tuples(lists, st.none()) | st.tuples(st.none(), ratio_lists))
    if options["variant"] == "window":
        options["window"] = data.draw(st.sampled_from([1, 2, 3, 100]))
        options["alpha"] = data.draw(st.sampled_from([0.5, 1.0, 2.0, 3.0]))
    found = learnt(groups, dev, ratios, **options)
    # The library never returns from some windows once a language is exhausted, and from texts
    # without tokens if there are ratios.
    assume(not (found.exhausted and options["variant"] == "window"))
    assume(ratios is None or all("".join(texts) for texts in groups))
    assert spelled(found) == library(groups, dev, ratios, **options)


@pytest.mark.parametrize("options", [{}, {"variant": "window", "global_merges": 50}])
def test_merges_of_four_languages_are_the_library_s(options: dict[str, Any]) -> None:
    folder = Path(__file__).parents[4] / "shared" / "data" / "flores"
    if not folder.is_dir():
        pytest.skip("no FLORES among the shared data")
    names = ["eng_Latn", "jpn_Jpan", "tha_Thai", "tur_Latn"]
    dev = [(folder / f"{name}.dev").read_text().splitlines()[:150] for name in names]
    train = [(folder / f"{name}.devtest").read_text().splitlines()[:150] for name in names]
    ours = learnt(train, dev, num_merges=300, **options)
    assert spelled(ours) == library(train, dev, num_merges=300, **options)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "need either development texts or ratios"),
        ({"dev": {}, "ratios": {}}, "need either development texts or ratios"),
        ({"dev": {"other": byte_words(["a"])}}, "must have the same languages"),
        ({"ratios": {"one": 0.0}}, "the ratio of 'one' must be greater than 0, got 0.0"),
    ],
)
def test_what_cannot_decide_is_refused(given: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        learn_parity_merges(
            {"one": byte_words(["ab"])}, byte_symbols(), ParityOptions(num_merges=1), **given
        )


@pytest.mark.parametrize(
    "options", [{"num_merges": -1}, {"variant": "both"}, {"window": 0}, {"alpha": float("nan")}]
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="must be"):
        ParityOptions(**({"num_merges": 1} | options))


def test_a_merge_that_spells_a_special_token_is_refused() -> None:
    words = {"one": byte_words(["abab"])}
    with pytest.raises(UserError, match="a merge spells the token 'ab', which already exists"):
        learn_parity_merges(words, byte_symbols(["ab"]), ParityOptions(num_merges=1), dev=words)

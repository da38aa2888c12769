"""Parity-aware merges equal those of the `tokenizers` library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import models, trainers

from tokenmill.core.errors import UserError
from tokenmill.kernels import pair_counts as pairs
from tokenmill.vocabulary.bpe.merges import MergeOptions
from tokenmill.vocabulary.bpe.parity import (
    ParityMerges,
    ParityOptions,
    Turns,
    learn_parity_merges,
)
from tokenmill.vocabulary.bpe.symbols import byte_symbols
from vocabulary.bpe.library_kit import BYTE_LEVEL, ours, words_of

Texts = Sequence[str]


def learnt(
    groups: Sequence[Texts],
    dev: Sequence[Texts] | None = None,
    ratios: Sequence[float] | None = None,
    *,
    num_merges: int,
    min_frequency: int = 0,
    max_token_length: int | None = None,
    **options: Any,
) -> ParityMerges:
    """Merges of languages "0", "1", ...; they are their own development texts if none are given."""
    words = {str(i): words_of(texts) for i, texts in enumerate(groups)}
    if ratios is not None:
        options["ratios"] = {str(i): ratio for i, ratio in enumerate(ratios)}
    elif dev is not None:
        options["dev"] = {str(i): words_of(texts) for i, texts in enumerate(dev)}
    else:
        options["dev"] = words
    limits = MergeOptions(
        vocabulary_size=256 + num_merges,
        min_frequency=min_frequency,
        max_token_length=max_token_length,
    )
    return learn_parity_merges(words, byte_symbols(), limits, ParityOptions(**options))


def spelled(found: ParityMerges) -> list[str]:
    return [" ".join(pair) for pair in ours(found.merges)[1]]


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
    assert found.turns == ["0", "1", "0", "1", "0", "1"]
    assert found.compression == {"0": 4.0, "1": 4.0}


def test_development_texts_decide_and_masses_are_of_the_training_texts() -> None:
    found = learnt([["ab"] * 10, ["cd"] * 5], [["ab"], ["cd"] * 10], num_merges=2)
    assert spelled(found) == ["c d", "a b"]
    assert found.merges.masses.tolist() == [5, 10]
    assert found.merges.num_tokens() == 15


def tiny_texts(letters: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.text(f"{letters} ", max_size=12), min_size=1, max_size=4)


@given(
    groups=st.lists(
        st.sampled_from(["ab", "aab", "añ", "xyz"]).flatmap(tiny_texts), min_size=1, max_size=4
    ),
    data=st.data(),
    num_merges=st.integers(1, 25),
    min_frequency=st.sampled_from([0, 0, 2]),
    max_token_length=st.sampled_from([None, None, 4]),
    variant=st.sampled_from(["base", "window"]),
    room=st.sampled_from([0, 1 << 16]),
)
@settings(max_examples=200, deadline=None)
def test_merges_of_tiny_corpora_are_the_library_s(
    groups: list[list[str]], data: st.DataObject, room: int, **options: Any
) -> None:
    number = len(groups)
    lists = st.lists(tiny_texts("abñxyz"), min_size=number, max_size=number)
    ratio_lists = st.lists(st.sampled_from([0.5, 1.0, 1.3, 2.0]), min_size=number, max_size=number)
    dev, ratios = data.draw(st.tuples(lists, st.none()) | st.tuples(st.none(), ratio_lists))
    if options["variant"] == "window":
        options["window"] = data.draw(st.sampled_from([1, 2, 3, 100]))
        options["alpha"] = data.draw(st.sampled_from([0.5, 1.0, 2.0, 3.0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairs, "MORE_PAIRS", room)
        found = learnt(groups, dev, ratios, **options)
    # The library never returns from some windows once a language is exhausted, and from texts
    # without tokens if there are ratios.
    assume(not (found.exhausted and options["variant"] == "window"))
    assume(ratios is None or all("".join(texts) for texts in groups))
    assert spelled(found) == library(groups, dev, ratios, **options)


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "need either development texts or ratios"),
        ({"dev": {}, "ratios": {}}, "need either development texts or ratios"),
        ({"dev": {"other": words_of(["a"])}}, "must have the same languages"),
        ({"ratios": {"one": 0.0}}, "the ratio of 'one' must be greater than 0, got 0.0"),
    ],
)
def test_what_cannot_decide_is_refused(given: dict[str, Any], what: str) -> None:
    limits, parity = MergeOptions(vocabulary_size=300), ParityOptions(**given)
    with pytest.raises(UserError, match=what):
        learn_parity_merges({"one": words_of(["ab"])}, byte_symbols(), limits, parity)


def turns(
    lengths: Sequence[int], most: float, recent: Sequence[int], exhausted: Sequence[int] = ()
) -> Turns:
    """After `recent` turns, which fill the window."""
    number = len(lengths)
    options = ParityOptions(variant="window", window=len(recent), alpha=most * number)
    made = Turns(np.array(lengths, np.int64), None, options)
    made.recent.extend(recent)
    made._num_recent += np.bincount(recent, minlength=number)
    made.exhausted[list(exhausted)] = True
    return made


@pytest.mark.parametrize(
    ("case", "chosen"),
    [
        (turns([5, 9, 7], 0.5, [0, 0, 1, 2]), 1),
        (turns([5, 9, 7], 0.5, [1, 1, 1, 2]), 2),  # the worst off had 3 of 4 turns
        (turns([5, 9, 7], 0.0, [0, 1, 2, 1]), 0),  # all had too many: the best off
        (turns([5, 9, 7], 0.0, [1, 1, 2, 2], [0]), 0),  # exhausted; the library loses turns there
        (turns([5, 9, 7], 0.0, [0, 0, 1, 2], [0]), 0),  # no other one is exhausted
        (turns([5, 9, 7], 0.0, [0, 0, 1, 1], [2]), 1),  # the library never returns
        (turns([5, 9, 7], 0.0, [0, 0, 1, 1], [0, 2]), 1),  # nor here
    ],
)
def test_in_a_window_where_the_library_has_rules_of_its_own(case: Turns, chosen: int) -> None:
    assert case.following() == chosen


def test_turns_leave_the_window_in_their_order() -> None:
    case = turns([9, 8], 0.5, [0, 0, 1, 1])
    assert [case.following() for _ in range(6)] == [0, 0, 0, 1, 1, 0]

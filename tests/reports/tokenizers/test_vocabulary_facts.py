"""What vocabularies are made of: by hand, and the published counts of Magikarp."""

from __future__ import annotations

from pathlib import Path

import pytest

from encode.tokenizer_kit import added_token, as_file, byte_level_json
from encode.trained_kit import NAMES, SENTENCES, trained
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.token_bytes import Token, tokens_of
from tokenmill.reports.tokenizers.subject import open_tokenizer
from tokenmill.reports.tokenizers.vocabulary_facts import (
    Overlap,
    VocabularyFacts,
    overlap,
    vocabulary_facts,
)

PUBLISHED = Path(__file__).parents[4] / "shared/data/tokenizers"


@pytest.mark.parametrize("name", NAMES)
def test_tokens_spell_what_they_encode(name: str) -> None:
    file = trained(name)
    tokens = tokens_of(file)
    assert tokens is not None
    reference = load_reference(file, control_tokens=False)
    for text in SENTENCES[:-1]:  # the last one is changed by NFC
        spelled = b"".join(tokens[i].data for i in reference.encode([text]).ids.tolist())
        assert spelled.removeprefix(b" " if name == "llama2" else b"") == text.encode()


def test_a_token_without_a_merge_is_unreachable() -> None:
    model = byte_level_json()["model"]
    vocabulary = {**model["vocab"], "ab": 259, "\u00c3\u00a9": 260, "\u00e9\u00c3": 261}
    merges = [*model["merges"], ["\u00c3", "\u00a9"], ["\u00e9", "\u00c3"]]
    added = [added_token("<end>", 262, special=True), added_token("<place>", 263)]
    changed = {"vocab": vocabulary, "merges": merges}
    file = as_file(byte_level_json(model=changed, added_tokens=added))
    assert vocabulary_facts(file, load_reference(file, control_tokens=False)) == VocabularyFacts(
        num_tokens=264,
        special=1,
        added=1,
        single_bytes=256,
        fragments=1,
        unreachable=1,
        long=0,
        unreachable_examples=["ab"],
        longest=["abc", " a", "bc", "ab", "\u00e9"],
    )


def test_the_overlap_of_two_vocabularies_is_by_bytes() -> None:
    ours = {0: Token(b"a"), 1: Token(b" b"), 2: Token(b"<s>", is_special=True)}
    theirs = {5: Token(b"a", spelling="x"), 6: Token(b"c"), 7: Token(b"d"), 8: Token(b"<s>")}
    assert overlap(ours, theirs) == Overlap(1, 0.5, 0.25, 0.2)


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs published tokenizers, which are no part")
@pytest.mark.parametrize(
    ("name", "special", "single_bytes", "fragments", "unreachable"),
    [
        ("neox.json", 2, 243, 369, 221),
        ("llama2.json", 3, 351, 0, 0),
        ("llama3.tiktoken", 256, 256, 1224, 0),
    ],
)
def test_published_vocabularies_have_the_counts_of_magikarp(
    name: str, special: int, single_bytes: int, fragments: int, unreachable: int
) -> None:
    file = open_tokenizer(PUBLISHED / name, "llama3" if name.endswith(".tiktoken") else "")
    facts = vocabulary_facts(file, load_reference(file, control_tokens=False))
    assert facts is not None
    found = (facts.special, facts.single_bytes, facts.fragments, facts.unreachable)
    assert found == (special, single_bytes, fragments, unreachable)

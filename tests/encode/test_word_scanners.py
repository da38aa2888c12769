"""Compiled scanners, against the tokenizers library."""

import functools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kit import BYTE_LEVEL, sequence, split

from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.encode.exactness import compare_tokens
from tokenmill.encode.splitters import LIBRARY, SCANNER, load_splitter, word_splitters
from tokenmill.encode.words import scanning
from tokenmill.encode.words.characters import characters
from tokenmill.encode.words.patterns import LLAMA3_SPLIT
from tokenmill.encode.words.scanning import composed_already, scanner_of
from tokenmill.encode.words.splits import SPLITS, split_of, with_digits

FLORES = Path(__file__).parents[3] / "shared" / "data" / "flores"
PREFIX_SPACE = {**BYTE_LEVEL, "add_prefix_space": True, "use_regex": True}
SCANNED = {name: split for name, split in SPLITS.items() if SCANNER in word_splitters(split)}
for name, digits in (("llama3", "groups-right"), ("qwen3.5", "groups-right"), ("o200k", "single")):
    SCANNED[f"{name}, {digits}"] = with_digits(SPLITS[name], digits)
SCANNED["prefix space"] = split_of({"pre_tokenizer": PREFIX_SPACE})
ATOMS = [
    *(" ", "  ", "\n", "\r", "\t", "\0", "\x1c", "\x85", "\xa0", "\u2028", "\u3000"),
    *("'", "'s", "'S", "'ſ", "'t", "'re", "'RE", "'lL", "'v", "'d", "ſ", "st", "ﬆ"),
    *("a", "b", "A", "Z", "é", "e", "ß", "ǅ", "ʰ", "ª", "漢", "한", "ᄒ", "ᅡ", "ᆫ", "Ω", "K", "K"),
    *("\u0301", "\u0323", "\u0334", "\u0345", "\u0903", "\u0e48", "\u3099"),
    *("@", "[", "{", "azAZazAZ", "azAZazAZaz"),
    *("1", "12", "1234", "٣", "½", "²", "Ⅷ", "\U0001d7d8", "\U00011de0", "\U00016ff4"),
    *("!", "/", "//", "_", "$", "+", "`", "…", "<|endoftext|>"),
    *("\u200d", "\ufeff", "\ufffd", "\u0378", "\ue000", "\U0001f600", "\U00020000", "\U00010400"),
]
"""What regexes look at, in all kinds of characters, assigned and not."""


@functools.cache
def splitters(name):
    return [load_splitter(SCANNED[name], each, 0) for each in (SCANNER, LIBRARY)]


def assert_exact(name, texts):
    scanner, library = splitters(name)
    compare_tokens(name, texts, scanner.encode(texts), library.encode(texts))


@pytest.mark.parametrize("name", SCANNED)
@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.sampled_from(ATOMS), max_size=12).map("".join), max_size=40))
def test_any_text_has_the_words_of_the_library(name, texts):
    assert_exact(name, texts)


@pytest.mark.parametrize("name", SCANNED)
def test_two_atoms_beside_each_other_have_the_words_of_the_library(name):
    assert_exact(name, [a + b for a in ATOMS for b in ATOMS])


@pytest.mark.parametrize("name", ["gpt2", "o200k", "qwen2", "qwen3.5", "starcoder"])
def test_the_first_and_last_character_of_each_class_is_seen_as_it_is(name):
    found = characters()
    both = found.classes.astype(int) << 8 | found.composition
    last = np.flatnonzero(np.diff(both))
    codes = {*last.tolist(), *(last + 1).tolist()}.difference(range(0xD800, 0xE000))
    text = "{0} a{0}b'{0}  {0}\n{0}A{0}{0}!{0}1{0}"
    assert_exact(name, [text.format(chr(code)) for code in sorted(codes)])


@pytest.mark.parametrize("name", ["gpt2", "llama3", "o200k"])
def test_what_an_apostrophe_binds_is_what_it_binds_in_the_library(name):
    assert_exact(name, [f"a'{chr(code)} '{chr(code)}e" for code in range(0x3000)])
    letters = "sStTmMdDrReEvVlLſx"
    assert_exact(name, [f"a'{a}{b}" for a in letters for b in letters])


@pytest.mark.skipif(not FLORES.is_dir(), reason="the FLORES files are not here")
@pytest.mark.parametrize("name", ["gpt2", "llama3", "o200k", "qwen2", "starcoder"])
def test_22_languages_have_the_words_of_the_library(name):
    texts = [path.read_text(encoding="utf-8")[:8_000] for path in sorted(FLORES.glob("*.dev"))]
    assert len(texts) == 22
    assert_exact(name, texts)


def test_words_are_found_in_steps_of_any_size(monkeypatch):
    texts = ["a bc  def", "", "it's 1234", " "]
    expected = splitters("llama3")[0].split(texts)
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(scanning, "WORDS_A_SCAN", size)
        found = splitters("llama3")[0].split(texts)
        assert found.edges.tolist() == expected.edges.tolist()
        assert found.words_before.tolist() == expected.words_before.tolist() == [0, 4, 4, 9, 10]


def test_runs_of_digits_are_grouped_from_their_end():
    numbers = ["1" * length + "½" * more for length in range(12) for more in (0, 1, 2)]
    texts = [f"{a}x {b}" for a in numbers for b in numbers[:12]]
    assert_exact("llama3, groups-right", texts)
    words = splitters("llama3, groups-right")[0].split(["7" * 100_000 + "x"])
    assert words.edges.tolist() == [0, *range(1, 100_001, 3), 100_001]


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from("aéeß\u0301\u0323\u0334\u0345\u0e48한한\u212bÅ\n")).map("".join)
    )
)
def test_a_text_that_is_taken_for_composed_is(texts):
    encoded = [text.encode() for text in texts]
    offsets = offsets_from_lengths([len(text) for text in encoded])
    composed = composed_already(np.frombuffer(b"".join(encoded), np.uint8), offsets)
    library = splitters("qwen2")[1]
    for text, is_composed in zip(texts, composed, strict=True):
        assert not is_composed or library.normalize(text) == text


def test_composed_texts_are_seen_to_be_composed():
    texts = ["Ünï", "ไม่มี", "한국어 漢字", "", "e\u0301", "\u212b", "a\u0334\u0345"]
    encoded = [text.encode() for text in texts]
    offsets = offsets_from_lengths([len(text) for text in encoded])
    found = composed_already(np.frombuffer(b"".join(encoded), np.uint8), offsets)
    assert found.tolist() == [True, True, True, True, False, False, False]


REFUSED = {
    "no byte level": split_of({"pre_tokenizer": {"type": "Whitespace"}}),
    "another normalizer": split_of({"normalizer": {"type": "NFKC"}, "pre_tokenizer": BYTE_LEVEL}),
    "another regex": split_of(
        {"pre_tokenizer": sequence(split(r"\w+"), {**BYTE_LEVEL, "use_regex": False})}
    ),
    "matches removed": split_of(
        {
            "pre_tokenizer": sequence(
                split(LLAMA3_SPLIT, behavior="Removed"), {**BYTE_LEVEL, "use_regex": False}
            )
        }
    ),
    "a space before every word": split_of(
        {"pre_tokenizer": sequence(split(LLAMA3_SPLIT), {**PREFIX_SPACE, "use_regex": False})}
    ),
    "groups of digits": split_of(
        {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False}, BYTE_LEVEL)}
    ),
    "none": split_of({}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_splits_that_differ_from_published_ones_are_not_scanned(name):
    assert scanner_of(REFUSED[name]) is None

"""Which tokenizers may have their texts cut, and where."""

from __future__ import annotations

import pytest
from pipeline_kit import (
    BERT_SPLIT,
    DIGITS,
    LOWERCASE,
    NFC,
    NFKC,
    NFKD,
    PUBLISHED,
    STRIP_ACCENTS,
    STRIP_RIGHT,
    WHITESPACE,
    WHITESPACE_SPLIT,
    custom_charsmap,
    metaspace,
    normalizers,
    pipeline_json,
    precompiled,
    punctuation,
    replace_regex,
    with_charsmap,
)
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    added_token,
    replace,
    sentencepiece_json,
    sequence,
    split,
)

from tokenmill.core.records import Int64Array, TokenBatch, UInt8Array
from tokenmill.encode.boundaries import batch_of
from tokenmill.encode.engines.chunks import ChunkEngine
from tokenmill.encode.engines.cuts import make_cuts
from tokenmill.encode.engines.locality import alternatives, locality_objection
from tokenmill.encode.words.patterns import LLAMA3_SPLIT
from tokenmill.kernels.chunks import Cuts

NO_SPLIT = "no pre-tokenizer that always splits at spaces"
SPACES_MADE = "a normalizer that replaces or adds spaces"
NOTHING_REPLACED = "a normalizer that replaces the empty string"
SPACES_REPLACED = "a normalizer that replaces spaces"
SPACE_IN_TOKEN = "an added token with a space"
LOOKS_BESIDE = "an added token with rstrip or single_word"


@pytest.mark.parametrize("control_tokens", [False, True], ids=["text", "control"])
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_pipelines_are_admitted(name: str, control_tokens: bool) -> None:
    mask = added_token("[MASK]", 0, special=True, lstrip=True)
    assert locality_objection(pipeline_json(*PUBLISHED[name], mask), control_tokens) == ""


def test_published_pipelines_with_a_table_of_characters_are_admitted() -> None:
    found = {
        name: locality_objection(pipeline_json(*p), True) for name, p in with_charsmap().items()
    }
    assert found == dict.fromkeys(found, "")


ADMITTED = {
    "digits and punctuation before the split": pipeline_json(
        None, sequence(DIGITS, punctuation("MergedWithNext"), WHITESPACE)
    ),
    "anything after the split": pipeline_json(
        None,
        sequence(WHITESPACE_SPLIT, split(r"\w+|\W+", "MergedWithNext"), {"type": "UnicodeScripts"}),
    ),
    "a sequence in a sequence": pipeline_json(
        normalizers(NFC, normalizers(LOWERCASE)), sequence(sequence(BERT_SPLIT))
    ),
    "a split that keeps words and digits alone": pipeline_json(
        None, split(r"[\p{L}]+|\p{N}", "Removed", True)
    ),
    "spaces that are ▁ before Metaspace": pipeline_json(replace(" ", "▁"), metaspace()),
    "an added token that takes white space before it": pipeline_json(
        None, WHITESPACE, added_token("<x>", 0, lstrip=True)
    ),
    "quotation marks that become others": pipeline_json(replace("``", '"'), WHITESPACE),
}


@pytest.mark.parametrize("name", ADMITTED)
def test_what_is_local_is_admitted(name: str) -> None:
    assert locality_objection(ADMITTED[name], True) == ""


def words(*added_tokens: Json, normalizer: Json | None = None) -> Json:
    return pipeline_json(normalizer, WHITESPACE, *added_tokens)


REFUSED = {
    "Llama 2": (sentencepiece_json(), "normalizer Prepend"),
    "no pre-tokenizer": (pipeline_json(None, None), NO_SPLIT),
    "Digits alone": (pipeline_json(None, DIGITS), NO_SPLIT),
    "ByteLevel without its regex": (pipeline_json(None, BYTES_ONLY), NO_SPLIT),
    "a split after the spaces are letters": (
        pipeline_json(None, sequence(BYTES_ONLY, WHITESPACE)),
        NO_SPLIT,
    ),
    "Metaspace that does not split": (pipeline_json(None, metaspace(split=False)), NO_SPLIT),
    "Metaspace with another replacement": (
        pipeline_json(None, metaspace(replacement="_")),
        NO_SPLIT,
    ),
    "a split that leaves spaces": (pipeline_json(None, split(r"\p{L}+|\p{N}")), NO_SPLIT),
    "an unknown regex": (pipeline_json(None, split(r"\w+|\s+")), NO_SPLIT),
    "an unknown regex before the split": (
        pipeline_json(None, sequence(split(r"\w \w"), WHITESPACE)),
        NO_SPLIT,
    ),
    "a regex that is no alternation": (pipeline_json(None, split(f"(?:{LLAMA3_SPLIT})")), NO_SPLIT),
    "a split that merges": (pipeline_json(None, split(LLAMA3_SPLIT, "MergedWithNext")), NO_SPLIT),
    "a split at a string": (
        pipeline_json(None, {**split(""), "pattern": {"String": " "}}),
        NO_SPLIT,
    ),
    "spaces that are ▁ where only spaces split": (
        pipeline_json(normalizers(NFC, replace(" ", "▁")), sequence(WHITESPACE, metaspace())),
        NO_SPLIT,
    ),
    "a ▁ that depends on the place": (
        pipeline_json(None, sequence(metaspace(), BYTE_LEVEL, metaspace("first"))),
        "Metaspace with prepend_scheme first",
    ),
    "spaces that are ▁ without Metaspace": (words(normalizer=replace(" ", "▁")), SPACES_REPLACED),
    "nothing that is replaced": (words(normalizer=replace("", "x")), NOTHING_REPLACED),
    "spaces that vanish": (words(normalizer=replace(" ", "")), SPACES_REPLACED),
    "several spaces that vanish": (words(normalizer=replace_regex(" {2,}", "")), SPACES_REPLACED),
    "a word with a space": (words(normalizer=replace("New York", "NY")), SPACES_MADE),
    "a space that is made": (words(normalizer=replace("_", " ")), SPACES_MADE),
    "a ▁ that is made": (words(normalizer=replace("_", "▁")), SPACES_MADE),
    "characters that vanish": (words(normalizer=replace("_", "")), SPACES_MADE),
    "characters that NFKD makes spaces of": (
        words(normalizer=normalizers(replace("_", "\u00a8"), NFKD, STRIP_ACCENTS)),
        SPACES_MADE,
    ),
    "another regex": (words(normalizer=replace_regex(r"\d+", "0")), "a normalizer with a regex"),
    "Strip on the left": (
        words(normalizer={**STRIP_RIGHT, "strip_left": True}),
        "normalizer Strip",
    ),
    "Prepend": (words(normalizer={"type": "Prepend", "prepend": "▁"}), "normalizer Prepend"),
    "ByteLevel as a normalizer": (words(normalizer={"type": "ByteLevel"}), "normalizer ByteLevel"),
    "rstrip": (words(added_token("<x>", 0, rstrip=True)), LOOKS_BESIDE),
    "single_word": (words(added_token("x", 0, single_word=True)), LOOKS_BESIDE),
    "a space in an added token": (words(added_token("a b", 0)), SPACE_IN_TOKEN),
    "a line in an added token": (words(added_token("a\n", 0)), SPACE_IN_TOKEN),
    "a ▁ in an added token": (words(added_token("▁a", 0)), SPACE_IN_TOKEN),
    "an added token that gets a space": (
        words(added_token("x\u00b4", 0, normalized=True), normalizer=NFKC),
        SPACE_IN_TOKEN,
    ),
    "an added token that vanishes": (
        words(added_token("\u0301", 0, normalized=True), normalizer=STRIP_ACCENTS),
        "an added token that the normalizer removes",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_local_is_the_references(name: str) -> None:
    tokenizer, reason = REFUSED[name]
    assert locality_objection(tokenizer, True) == reason


@pytest.mark.parametrize("key", [" ", " \u0301", "\u0601a", "\U000110bda", " \u0301\u0302"])
def test_a_table_that_replaces_what_begins_with_a_space_is_refused(key: str) -> None:
    normalizer = precompiled(custom_charsmap((key, "x"), ("\t", " ")))
    expected = "a normalizer with a table that replaces spaces"
    assert locality_objection(words(normalizer=normalizer), True) == expected


def test_special_tokens_count_where_they_are_looked_for() -> None:
    special = added_token("<a b>", 0, special=True)
    assert locality_objection(words(special), control_tokens=False) == ""
    assert locality_objection(words(special), control_tokens=True) == SPACE_IN_TOKEN


def test_special_tokens_that_are_text_count_where_they_hide_others() -> None:
    tokenizer = words(added_token("<a b>", 0, special=True), added_token("b>c", 0))
    assert locality_objection(tokenizer, control_tokens=False) == SPACE_IN_TOKEN


def test_bars_in_brackets_and_parentheses_are_no_alternatives() -> None:
    assert alternatives(r"a|[|b\]|]+|(c|d)|\||\(|e") == [
        "a",
        r"[|b\]|]+",
        "(c|d)",
        r"\|",
        r"\(",
        "e",
    ]
    assert "|".join(alternatives(LLAMA3_SPLIT)) == LLAMA3_SPLIT


class Bars(ChunkEngine):
    """The ids of a chunk are a bar and its characters."""

    def _encode_chunks(self, data: UInt8Array, places: Int64Array) -> TokenBatch:
        chunks = [data[start:stop].tobytes().decode() for start, stop in places]
        return batch_of([list(map(ord, "|" + chunk)) for chunk in chunks])


def cut(text: str, cuts: Cuts) -> str:
    """A text with a bar at every cut."""
    ids = Bars("bars", "1", cuts, 0).encode([text]).ids
    return "".join(map(chr, ids))[1:]


SAMPLE = "It's f(x1) = 3.14;  a_b …\n\tü  日本 a\u0301 ▁ b,\nc\td"
SPACES_ONLY = "It's| f(x1)| =| 3.14;|  a_b| …\n\tü|  日本| a\u0301 ▁ b,\nc\td"
CUT = {
    "BERT": "It|'|s| f|(|x1|)| =| 3|.|14|;|  a|_|b| …\n\tü|  |日|本 a\u0301 ▁ b|,|\nc|\td",
    "words": "It|'|s| f|(|x1|)| =| 3|.|14|;|  a_b| …\n\tü|  日本| a\u0301 ▁ b|,|\nc|\td",
    "words and marks": SPACES_ONLY.replace("\nc\td", "|\nc|\td"),
    "Unigram": SPACES_ONLY,
    "GPT-2": "It's| f|(|x|1|)| =| 3|.|14|;|  a|_|b| …\n\tü|  日本| a\u0301 ▁ b|,|\nc|\td",
    "GPT-2 with a prefix space": SPACES_ONLY,
    "StarCoder": "It's| f|(|x|1|)| =| 3|.|1|4|;|  a|_|b| …\n\tü|  日本| a\u0301 ▁ b|,|\nc|\td",
    "CLIP": "It's| f|(x|1|)| =| 3|.|14|;|  a|_b| …\n\tü|  日本| a\u0301 ▁ b|,|\nc|\td",
    "Llama 3": "It's| f|(x|1|)| =| 3|.|14|;|  a|_b| …\n\tü|  日本| a\u0301 ▁ b|,\nc|\td",
}


@pytest.mark.parametrize("name", CUT)
def test_texts_are_cut_where_the_steps_allow(name: str) -> None:
    assert cut(SAMPLE, make_cuts(pipeline_json(*PUBLISHED[name]), True)) == CUT[name]

r"""Splits of texts into words: a normalizer and a pre-tokenizer, under the name of their publisher.

The steps are written as in a tokenizer.json, so the tokenizers library can run them. Numbers can be
cut differently from how they were published:

    single          1234567 -> 1 2 3 4 5 6 7      Llama 2, Qwen, StarCoder
    groups-right    1234567 -> 1 234 567          Singh & Strouse 2024 (arXiv 2402.14903)

Llama 3's own `\p{N}{1,3}` groups from the left: 123 456 7. To group from the right, a regex needs a
lookahead to the end of the number, so n digits take n^2 steps: 10,000 digits take 0.07 s, and
50,000 take 1.7 s. Compiled scanners need one pass.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Literal

from tokenmill.core.errors import UserError
from tokenmill.core.suggestions import did_you_mean
from tokenmill.encode.tokenizer_json import SINGLE_DIGITS, Json, normalizers, pre_tokenizers
from tokenmill.encode.words.patterns import (
    DEEPSEEK3_SPLITS,
    DIGIT_GROUPS,
    LLAMA3_SPLIT,
    O200K_SPLIT,
    QWEN2_SPLIT,
    QWEN3_5_SPLIT,
    TEKKEN_SPLIT,
)
from tokenmill.encode.words.sentencepiece import (
    RULES,
    NormalizationRule,
    Normalizer,
    metaspace,
    named_normalizer,
)

_NFC = {"type": "NFC"}
SENTENCEPIECE_SPLITS: dict[str, NormalizationRule] = {
    "sentencepiece": "nmt_nfkc",
    **{f"sentencepiece-{rule}": rule for rule in RULES},
}
"""Splits for SentencePiece's own rules; the sentencepiece library has their tables."""
ALIASES = {"qwen": "qwen2", "qwen3": "qwen2", "cl100k_base": "cl100k", "o200k_base": "o200k"}
Digits = Literal["keep", "single", "groups-right"]
_PATTERNS = {"single": r"\p{N}", "groups-right": DIGIT_GROUPS}
_DIGITS_ALONE = re.compile(rf"(^|\|)(?:{re.escape(DIGIT_GROUPS)}|\\p\{{N\}}(?:\{{1,3\}})?)(?=\||$)")
"""The alternative of a pattern that matches only digits."""


@dataclass(frozen=True, slots=True)
class Split:
    """A normalizer and a pre-tokenizer, the steps before a model."""

    name: str
    """The name of a published split; "" if it comes from a tokenizer file."""
    normalizer: Json | None
    pre_tokenizer: Json | None
    byte_level: bool
    """Whether the model works on the bytes of words instead of their characters."""

    @property
    def steps(self) -> Json:
        """The steps, which determine the words, as a tokenizer.json holds them."""
        return {"normalizer": self.normalizer, "pre_tokenizer": self.pre_tokenizer}


def byte_level(use_regex: bool) -> Json:
    """Return the byte-level pre-tokenizer, with GPT-2's regex if `use_regex`."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _byte_split(name: str, *steps: Json, normalizer: Json | None = None) -> Split:
    """Return a split with steps before a byte level."""
    return Split(name, normalizer, {"type": "Sequence", "pretokenizers": [*steps]}, True)


def _regex_split(name: str, *patterns: str, normalizer: Json | None = None) -> Split:
    """Return a byte-level split with regular expressions, applied one after another."""
    steps = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in patterns
    ]
    return _byte_split(name, *steps, byte_level(use_regex=False), normalizer=normalizer)


def _bert(name: str, lowercase: bool) -> Split:
    normalizer = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": None,
        "lowercase": lowercase,
    }
    return Split(name, normalizer, {"type": "BertPreTokenizer"}, False)


SPLITS = {
    split.name: split
    for split in (
        Split("gpt2", None, byte_level(use_regex=True), True),
        _regex_split("cl100k", LLAMA3_SPLIT),
        _regex_split("o200k", O200K_SPLIT),
        _regex_split("llama3", LLAMA3_SPLIT),
        _regex_split("qwen2", QWEN2_SPLIT, normalizer=_NFC),
        _regex_split("qwen3.5", QWEN3_5_SPLIT, normalizer=_NFC),
        _byte_split("starcoder", SINGLE_DIGITS, byte_level(use_regex=True)),
        _regex_split("tekken", TEKKEN_SPLIT),
        _regex_split("deepseek3", *DEEPSEEK3_SPLITS),
        Split("metaspace", None, metaspace("always"), False),
        _bert("bert", lowercase=True),
        _bert("bert-cased", lowercase=False),
        Split("whitespace", None, {"type": "Whitespace"}, False),
    )
}
"""Splits by name. `cl100k` is OpenAI's pattern as written in tokenizer.json files; Llama 3 uses it,
too. Published SentencePiece models become `metaspace`, each with its own normalizer."""
_OF_BYTES = [name for name, split in SPLITS.items() if split.byte_level]
SPLITS_BY_MODEL = (
    f"bpe: {', '.join(_OF_BYTES)}; bpe, wordpiece and wordlevel: "
    f"{', '.join(name for name in SPLITS if name not in _OF_BYTES)}; unigram and sentencepiece-*: "
    f"{', '.join(SENTENCEPIECE_SPLITS)}"
)
"""The names, for help."""


def named_split(name: str) -> Split:
    """Return the published split with a name or alias.

    Raises:
        UserError: the name is unknown, or the split needs sentencepiece, which is not installed.
    """
    if rule := SENTENCEPIECE_SPLITS.get(name):
        return sentencepiece_split(named_normalizer(rule), name)
    split = SPLITS.get(ALIASES.get(name, name))
    if split is None:
        known = [*SPLITS, *SENTENCEPIECE_SPLITS, *ALIASES]
        raise UserError(
            f"cannot find the split {name!r}",
            why=f"the splits are {', '.join([*SPLITS, *SENTENCEPIECE_SPLITS])}",
            hint=did_you_mean(name, known, "or name a tokenizer.json of your own"),
        )
    return split


def sentencepiece_split(normalizer: Normalizer, name: str = "") -> Split:
    """Return the split of a SentencePiece model."""
    steps = normalizer.steps()
    scheme: Literal["always", "never"] = "always" if normalizer.add_prefix else "never"
    sequence = {"type": "Sequence", "normalizers": steps} if steps else None
    return Split(name, sequence, metaspace(scheme), False)


def split_of(tokenizer_json: Json) -> Split:
    """Return the steps before the model of a tokenizer.json.

    Raises:
        UserError: the steps cannot be read.
    """
    try:
        steps = normalizers(tokenizer_json) + pre_tokenizers(tokenizer_json)
        in_bytes = "ByteLevel" in [step["type"] for step in steps]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        what = "cannot read the normalizer and the pre-tokenizer of the tokenizer"
        hint = "they must have the form that the tokenizers library writes into tokenizer.json"
        raise UserError(what, why=f"{type(error).__name__}: {error}", hint=hint) from error
    normalizer, pre_tokenizer = map(tokenizer_json.get, ("normalizer", "pre_tokenizer"))
    return Split("", normalizer, pre_tokenizer, in_bytes)


def with_digits(split: Split, digits: Digits) -> Split:
    """Return an unnamed copy of a split that cuts numbers in another way.

    If a pattern of the split has an alternative for numbers, that is replaced. Otherwise a step is
    added.

    Raises:
        UserError: the split already cuts into single digits, which cannot be grouped later.
    """
    if digits == "keep":
        return split
    steps = pre_tokenizers(split.steps)
    if digits != "single" and any(step["type"] == "Digits" for step in steps):
        raise UserError(
            f"cannot group the digits of the split {split.name!r}",
            why="one of its steps makes each digit a word",
            hint="choose another --split, or --digits keep",
        )
    found = [_replaced(step, _PATTERNS[digits]) for step in steps]
    cuts = (step["type"] == "Digits" or _replaced(step, "") != step for step in steps)
    if found == steps and not any(cuts):
        # Before the byte-level step, but after the step that marks spaces.
        place = 0 if split.byte_level else len(steps)
        found.insert(place, _digits_step(digits))
    if found == steps:
        return split
    sequence = {"type": "Sequence", "pretokenizers": found}
    return dataclasses.replace(split, name="", pre_tokenizer=sequence)


def _digits_step(digits: Digits) -> Json:
    if digits == "single":
        return SINGLE_DIGITS
    pattern = {"Regex": DIGIT_GROUPS}
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}


def _replaced(step: Json, pattern: str) -> Json:
    """Replace the alternative for digits in the pattern of a step, if it has one."""
    regex = step["pattern"].get("Regex", "") if step["type"] == "Split" else ""
    if not _DIGITS_ALONE.search(regex):
        return step
    made = _DIGITS_ALONE.sub(lambda found: found[1] + pattern, regex)
    return {**step, "pattern": {"Regex": made}}

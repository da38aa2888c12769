"""How texts become words: a normalizer and a pre-tokenizer, by the name of who published them.

The steps are spelled as in a tokenizer.json, so that the library itself can run them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tokenmill.errors import UserError
from tokenmill.suggestions import nearest
from tokenmill.words.patterns import (
    DEEPSEEK3_SPLITS,
    LLAMA3_SPLIT,
    O200K_SPLIT,
    QWEN2_SPLIT,
    QWEN3_5_SPLIT,
    TEKKEN_SPLIT,
)
from tokenmill.words.sentencepiece import (
    RULES,
    NormalizationRule,
    Normalizer,
    metaspace,
    named_normalizer,
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Split:
    """The steps before a model."""

    name: str
    """Of a published split; "" for one that a tokenizer's file holds."""
    normalizer: Json | None
    pre_tokenizer: Json | None
    byte_level: bool
    """Whether a model begins with the bytes of words, not with their characters."""

    @property
    def steps(self) -> tuple[Json | None, Json | None]:
        """What decides the words: normalizer and pre-tokenizer; the name does not."""
        return self.normalizer, self.pre_tokenizer


def byte_level(use_regex: bool) -> Json:
    """The pre-tokenizer that spells bytes as printable characters; GPT-2's regex comes with it."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _byte_split(name: str, *steps: Json, normalizer: Json | None = None) -> Split:
    """Steps before GPT-2's byte level."""
    return Split(name, normalizer, {"type": "Sequence", "pretokenizers": [*steps]}, True)


def _regex_split(name: str, *patterns: str, normalizer: Json | None = None) -> Split:
    """Words by regular expressions, one after another, spelled in bytes."""
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


_NFC = {"type": "NFC"}
_DIGITS = {"type": "Digits", "individual_digits": True}
SPLITS = {
    split.name: split
    for split in (
        Split("gpt2", None, byte_level(use_regex=True), True),
        _regex_split("cl100k", LLAMA3_SPLIT),
        _regex_split("o200k", O200K_SPLIT),
        _regex_split("llama3", LLAMA3_SPLIT),
        _regex_split("qwen2", QWEN2_SPLIT, normalizer=_NFC),
        _regex_split("qwen3.5", QWEN3_5_SPLIT, normalizer=_NFC),
        _byte_split("starcoder", _DIGITS, byte_level(use_regex=True)),
        _regex_split("tekken", TEKKEN_SPLIT),
        _regex_split("deepseek3", *DEEPSEEK3_SPLITS),
        Split("metaspace", None, metaspace("always"), False),
        _bert("bert", lowercase=True),
        _bert("bert-cased", lowercase=False),
        Split("whitespace", None, {"type": "Whitespace"}, False),
    )
}
"""By name. `cl100k` is OpenAI's pattern as tokenizer.json files spell it, which is Llama 3's, too.
Published SentencePiece models convert to `metaspace`, each with a normalizer of its own."""
SENTENCEPIECE_SPLITS: dict[str, NormalizationRule] = {
    "sentencepiece": "nmt_nfkc",
    **{f"sentencepiece-{rule}": rule for rule in RULES},
}
"""What gives the words of SentencePiece's own rules, whose tables that library holds."""
ALIASES = {"qwen": "qwen2", "qwen3": "qwen2", "cl100k_base": "cl100k", "o200k_base": "o200k"}


def named_split(name: str) -> Split:
    """The published split of that name or alias.

    Raises:
        UserError: there is none, or it is SentencePiece's, which is not installed.
    """
    if rule := SENTENCEPIECE_SPLITS.get(name):
        return sentencepiece_split(named_normalizer(rule), name)
    split = SPLITS.get(ALIASES.get(name, name))
    if split is None:
        close = nearest(name, [*SPLITS, *SENTENCEPIECE_SPLITS, *ALIASES])
        raise UserError(
            f"cannot find the split {name!r}",
            why=f"the splits are {', '.join([*SPLITS, *SENTENCEPIECE_SPLITS])}",
            hint=f"did you mean {close}?" if close else "or name a tokenizer.json of your own",
        )
    return split


def sentencepiece_split(normalizer: Normalizer, name: str = "") -> Split:
    """What gives the words of a SentencePiece model."""
    steps = normalizer.steps()
    scheme: Literal["always", "never"] = "always" if normalizer.add_prefix else "never"
    sequence = {"type": "Sequence", "normalizers": steps} if steps else None
    return Split(name, sequence, metaspace(scheme), False)


def split_of(tokenizer_json: Json) -> Split:
    """The steps before the model of somebody's own tokenizer.json.

    Raises:
        UserError: they are not spelled as steps.
    """
    normalizer = tokenizer_json.get("normalizer")
    pre_tokenizer = tokenizer_json.get("pre_tokenizer")
    try:
        steps = [*steps_of(normalizer, "normalizers"), *steps_of(pre_tokenizer, "pretokenizers")]
        in_bytes = "ByteLevel" in [step["type"] for step in steps]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        what = "cannot read the normalizer and the pre-tokenizer of the tokenizer"
        hint = "they must have the form that the tokenizers library writes into tokenizer.json"
        raise UserError(what, why=f"{type(error).__name__}: {error}", hint=hint) from error
    return Split("", normalizer, pre_tokenizer, in_bytes)


def steps_of(component: Json | None, members: str) -> Iterator[Json]:
    """The steps of a component, those of sequences in sequences included."""
    if component is None:
        return
    if component["type"] != "Sequence":
        yield component
        return
    for member in component[members]:
        yield from steps_of(member, members)

"""SentencePiece's normalizers, as steps of a tokenizer.json.

SentencePiece replaces by a table (the longest key first), joins spaces, removes those at both ends,
puts one before the text, spells them ▁, and splits before each. `Precompiled` holds the same table
but looks keys up by grapheme. So the two differ where a grapheme of several code points begins with
a key or holds one: on 15 of 2,009 lines of Bengali in FLORES, and on none of most languages. By the
rules that fold case it makes "E" with a combining mark an "e" without one.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokenmill.errors import UserError
from tokenmill.protobuf import read_fields, write_field
from tokenmill.words.patterns import FIRST_SPACE, LAST_SPACE

Json = dict[str, Any]
NormalizationRule = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]
RULES: tuple[NormalizationRule, ...] = get_args(NormalizationRule)
SPACE = "▁"

_NAME, _TABLE, _ADD_PREFIX, _JOIN_SPACES = 1, 2, 3, 4
"""Fields of `NormalizerSpec` in sentencepiece_model.proto."""


@dataclass(frozen=True, slots=True)
class Normalizer:
    """What a SentencePiece model does to a text before it looks for pieces."""

    name: str
    table: bytes
    """A double-array trie of what is replaced, and by what; b"" for nothing."""
    add_prefix: bool = True
    """A space before the text (`add_dummy_prefix`)."""
    join_spaces: bool = True
    """One space of several, none at the ends (`remove_extra_whitespaces`)."""

    @classmethod
    def read(cls, message: bytes) -> Normalizer:
        """What a model file says of its normalizer.

        Raises:
            ValueError: the bytes are no message.
        """
        fields: dict[int, Any] = dict(read_fields(message))
        flags = [bool(fields.get(number, True)) for number in (_ADD_PREFIX, _JOIN_SPACES)]
        return cls(fields.get(_NAME, b"").decode(), fields.get(_TABLE, b""), *flags)

    def message(self) -> bytes:
        """What the library writes into a model file that was trained with it."""
        flags = {_ADD_PREFIX: self.add_prefix, _JOIN_SPACES: self.join_spaces}
        fields = [write_field(_NAME, self.name.encode()), write_field(_TABLE, self.table)]
        fields += [write_field(number, 0) for number, is_set in flags.items() if not is_set]
        return b"".join(fields)

    def steps(self) -> list[Json]:
        """What the `tokenizers` library does in its place, before `metaspace`.

        Texts may only differ as the head of this module says, where one ends in U+0085, which the
        library takes for white space, where one begins or ends with ▁ itself, and without
        `join_spaces` where one begins with a space or has a line that ends in CR LF.
        """
        steps: list[Json] = []
        if self.table:
            encoded = base64.b64encode(self.table).decode()
            steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
        if not self.join_spaces:
            return steps
        steps.append(_replace({"Regex": " {2,}"}, " "))
        if self.name.startswith("nmt"):  # all white space is a space by now
            strip = {"type": "Strip", "strip_left": not self.add_prefix, "strip_right": True}
            return [*steps, strip]
        # Metaspace makes one ▁ of the first space and its own prefix.
        ends = [LAST_SPACE] if self.add_prefix else [FIRST_SPACE, LAST_SPACE]
        return steps + [_replace({"Regex": pattern}, "") for pattern in ends]


def named_normalizer(
    rule: NormalizationRule, add_prefix: bool = True, join_spaces: bool = True
) -> Normalizer:
    """The normalizer of one of SentencePiece's rules.

    Raises:
        UserError: sentencepiece is not installed.
    """
    if rule == "identity":
        return Normalizer(rule, b"", add_prefix, join_spaces)
    try:
        import sentencepiece
    except ImportError as error:
        hint = "pip install 'tokenmill[sentencepiece]'"
        raise UserError(
            "SentencePiece's rules need the package sentencepiece, which is not installed",
            hint=hint,
        ) from error
    message = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_normalizer_spec()
    return Normalizer(rule, Normalizer.read(message).table, add_prefix, join_spaces)


def metaspace(scheme: Literal["always", "first", "never"]) -> Json:
    """Spaces become ▁, and a word begins at each; where one is put before the text."""
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}


def _replace(pattern: Json, content: str) -> Json:
    return {"type": "Replace", "pattern": pattern, "content": content}

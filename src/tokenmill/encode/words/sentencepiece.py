"""SentencePiece's normalizers, as steps of a tokenizer.json.

SentencePiece replaces text by a table (longest key first), joins spaces, strips both ends, adds a
space before the text, replaces spaces with ▁, and splits before each. `Precompiled` has the same
table but looks up keys by grapheme. The two differ if a grapheme of several code points starts with
or contains a key: on 15 of 2,009 lines of Bengali in FLORES, and on no line of most languages. With
the rules that fold case, it turns "E" with a combining mark into "e" without the mark.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.encode.protobuf import read_fields, write_field
from tokenmill.encode.words.patterns import FIRST_SPACE, LAST_SPACE

Json = dict[str, Any]
NormalizationRule = Literal["nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity"]
RULES: tuple[NormalizationRule, ...] = get_args(NormalizationRule)
SPACE = "▁"

_NAME, _TABLE, _ADD_PREFIX, _JOIN_SPACES = 1, 2, 3, 4
"""Fields of `NormalizerSpec` in sentencepiece_model.proto."""


@dataclass(frozen=True, slots=True)
class Normalizer:
    """The normalizer of a SentencePiece model."""

    name: str
    table: bytes
    """A double-array trie of replacements; b"" for none."""
    add_prefix: bool = True
    """Whether to add a space before the text (`add_dummy_prefix`)."""
    join_spaces: bool = True
    """Whether to join spaces and strip both ends (`remove_extra_whitespaces`)."""

    @classmethod
    def read(cls, message: bytes) -> Normalizer:
        """Read the normalizer from its message in a model file.

        Raises:
            ValueError: the bytes are not a valid message.
        """
        fields: dict[int, Any] = dict(read_fields(message))
        flags = [bool(fields.get(number, True)) for number in (_ADD_PREFIX, _JOIN_SPACES)]
        return cls(fields.get(_NAME, b"").decode(), fields.get(_TABLE, b""), *flags)

    def message(self) -> bytes:
        """Return the message that the library writes into a model file."""
        flags = {_ADD_PREFIX: self.add_prefix, _JOIN_SPACES: self.join_spaces}
        fields = [write_field(_NAME, self.name.encode()), write_field(_TABLE, self.table)]
        fields += [write_field(number, 0) for number, is_set in flags.items() if not is_set]
        return b"".join(fields)

    def steps(self) -> list[Json]:
        """Return the equivalent steps of the `tokenizers` library, before `metaspace`.

        Results only differ as described at the top of this module; for texts that end in U+0085,
        which the library treats as white space; for texts that begin or end with ▁ itself; and
        without `join_spaces`, for texts that begin with a space or have a line that ends in CR LF.
        """
        steps: list[Json] = []
        if self.table:
            encoded = base64.b64encode(self.table).decode()
            steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
        if not self.join_spaces:
            return steps
        steps.append(_replace({"Regex": " {2,}"}, " "))
        if self.name.startswith("nmt"):  # all white space has become spaces
            strip = {"type": "Strip", "strip_left": not self.add_prefix, "strip_right": True}
            return [*steps, strip]
        # Metaspace merges the first space and its own prefix into one ▁.
        ends = [LAST_SPACE] if self.add_prefix else [FIRST_SPACE, LAST_SPACE]
        return steps + [_replace({"Regex": pattern}, "") for pattern in ends]


def named_normalizer(
    rule: NormalizationRule, add_prefix: bool = True, join_spaces: bool = True
) -> Normalizer:
    """Return the normalizer of one of SentencePiece's rules.

    Raises:
        UserError: sentencepiece is not installed.
    """
    if rule == "identity":
        return Normalizer(rule, b"", add_prefix, join_spaces)
    try:
        import sentencepiece
    except ImportError as error:
        hint = install_command("sentencepiece")
        raise UserError(
            "SentencePiece's rules need the package sentencepiece, which is not installed",
            hint=hint,
        ) from error
    message = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_normalizer_spec()
    return Normalizer(rule, Normalizer.read(message).table, add_prefix, join_spaces)


def metaspace(scheme: Literal["always", "first", "never"]) -> Json:
    """Return a pre-tokenizer that spells spaces as ▁, splits before each, and may prepend one."""
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}


def _replace(pattern: Json, content: str) -> Json:
    return {"type": "Replace", "pattern": pattern, "content": content}

"""The options for training a SentencePiece model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tokenmill.core.errors import UserError
from tokenmill.encode.words.sentencepiece import NormalizationRule, Normalizer, named_normalizer
from tokenmill.encode.words.splits import Split, sentencepiece_split

SpecialRole = Literal["unk", "bos", "eos", "pad"]
DEFAULT_PIECES: dict[SpecialRole, str] = {
    "unk": "<unk>",
    "bos": "<s>",
    "eos": "</s>",
    "pad": "<pad>",
}
NUM_BYTES = 256


@dataclass(frozen=True, kw_only=True)
class SentencePieceOptions:
    """Some of SentencePiece's options and its defaults, under longer names.

    Source: https://github.com/google/sentencepiece/blob/master/doc/options.md
    """

    model: Literal["bpe", "unigram"]
    vocabulary_size: int
    """The number of pieces, including special and byte pieces."""
    normalization: NormalizationRule = "nmt_nfkc"
    character_coverage: float = 0.9995
    """The share of the corpus' characters that become pieces, from 0.98 to 1."""
    byte_fallback: bool = False
    """Whether other characters become bytes, which adds 256 pieces."""
    split_digits: bool = False
    """Whether each digit is a separate piece."""
    max_piece_characters: int = 16
    specials: Mapping[SpecialRole, str] = field(
        default_factory=lambda: {"unk": "<unk>", "bos": "<s>", "eos": "</s>"}
    )
    """Special pieces by role; their ids count up from 0."""
    control_symbols: tuple[str, ...] = ()
    """Pieces that never match text, with the next ids."""

    @property
    def normalizer(self) -> Normalizer:
        """The model's normalizer; needs the library."""
        return named_normalizer(self.normalization)

    @property
    def split(self) -> Split:
        """The split that words must be counted with."""
        return sentencepiece_split(self.normalizer)

    def trainer_arguments(self) -> dict[str, str | int | float | bool | list[str]]:
        """Return the library's arguments for words that are already normalized."""
        ids = {role: number for number, role in enumerate(self.specials)}
        pieces = {**DEFAULT_PIECES, **self.specials}
        return {
            "model_type": self.model,
            "vocab_size": self.vocabulary_size,
            "normalization_rule_name": "identity",
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "character_coverage": self.character_coverage,
            "byte_fallback": self.byte_fallback,
            "split_digits": self.split_digits,
            # A default that is given is stored in the model, and one that is not given is not.
            "split_by_unicode_script": True,
            "max_sentencepiece_length": self.max_piece_characters,
            **{f"{role}_piece": piece for role, piece in pieces.items()},
            **{f"{role}_id": ids.get(role, -1) for role in pieces},
            "control_symbols": list(self.control_symbols),
            "user_defined_symbols": [],
            "num_threads": 1,  # a Unigram model depends on their number
        }

    def check(self) -> None:
        """Check options that would make the library abort.

        Raises:
            UserError: a size or a piece is invalid.
        """
        pieces = [*self.specials.values(), *self.control_symbols]
        least = len(pieces) + NUM_BYTES * self.byte_fallback
        if self.vocabulary_size <= least:
            raise UserError(
                f"a vocabulary of {self.vocabulary_size:,} pieces is too small",
                why=f"special pieces, symbols and bytes alone need {least:,}",
                hint="choose a larger vocabulary",
            )
        if not 0.98 <= self.character_coverage <= 1:
            why = f"got {self.character_coverage}; SentencePiece accepts 0.98 to 1"
            raise UserError("the character coverage is out of range", why=why)
        if not 1 <= self.max_piece_characters <= 512:
            why = f"got {self.max_piece_characters}; SentencePiece accepts 1 to 512"
            raise UserError("the maximum number of characters in a piece is out of range", why=why)
        if "unk" not in self.specials:
            why = "SentencePiece requires one"
            raise UserError("the piece for unknown characters has no id", why=why)
        if len(set(pieces)) != len(pieces):
            raise UserError("two special pieces have the same name")
        if bad := next((p for p in pieces if not p or set(p) & set("\t\n\0 ")), None):
            why = "it is empty or contains white space (SentencePiece spells a space ▁)"
            raise UserError(f"{bad!r} is not a valid piece", why=why)

"""The options for training a SentencePiece model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenmill.core.errors import UserError
from tokenmill.encode.words.sentencepiece import NormalizationRule, Normalizer, named_normalizer
from tokenmill.encode.words.splits import Split, sentencepiece_split

NO_ID = -1
NUM_BYTES = 256


@dataclass(frozen=True, slots=True)
class SentencePieceOptions:
    """SentencePiece's options and defaults, under longer names.

    Source: https://github.com/google/sentencepiece/blob/master/doc/options.md
    """

    model: Literal["bpe", "unigram"]
    vocabulary_size: int
    """The number of pieces, including special and byte pieces."""
    normalization: NormalizationRule = "nmt_nfkc"
    add_prefix: bool = True
    """Whether to put a space before the text (`add_dummy_prefix`)."""
    join_spaces: bool = True
    """Whether to join several spaces to one and strip the ends (`remove_extra_whitespaces`)."""
    character_coverage: float = 0.9995
    """The share of the corpus' characters that become pieces, from 0.98 to 1."""
    byte_fallback: bool = False
    """Whether other characters become bytes, which adds 256 pieces."""
    split_digits: bool = False
    """Whether each digit is a separate piece."""
    split_by_script: bool = True
    """Whether pieces never mix letters of two scripts."""
    max_piece_characters: int = 16
    unk_piece: str = "<unk>"
    unk_id: int = 0
    bos_piece: str = "<s>"
    bos_id: int = 1
    """-1 for no such piece; the same applies to `eos_id` and `pad_id`."""
    eos_piece: str = "</s>"
    eos_id: int = 2
    pad_piece: str = "<pad>"
    pad_id: int = NO_ID
    control_symbols: tuple[str, ...] = ()
    """Pieces that never match text, with the next free ids."""
    user_defined_symbols: tuple[str, ...] = ()
    """Pieces that are matched in a text first, such as `("▁▁", "▁▁▁▁")` for code."""
    seeds_a_piece: int = 5
    """For Unigram, the number of seeds per piece, at most 1,000,000 in total (which the library
    always uses). Fewer seeds are more frequent ones, and give fewer tokens."""
    num_threads: int = 1
    """A Unigram model depends on the number of threads; a BPE model does not."""

    @property
    def normalizer(self) -> Normalizer:
        """The model's normalizer; needs the library."""
        return named_normalizer(self.normalization, self.add_prefix, self.join_spaces)

    @property
    def split(self) -> Split:
        """The split that words must be counted with."""
        return sentencepiece_split(self.normalizer)

    @property
    def num_special_pieces(self) -> int:
        """The number of pieces that do not come from the corpus."""
        ids = (self.unk_id, self.bos_id, self.eos_id, self.pad_id)
        symbols = len(self.control_symbols) + len(self.user_defined_symbols)
        return sum(id >= 0 for id in ids) + symbols + NUM_BYTES * self.byte_fallback

    def trainer_arguments(self) -> dict[str, str | int | float | bool | list[str]]:
        """Return the library's arguments for words that are already normalized."""
        return {
            "model_type": self.model,
            "vocab_size": self.vocabulary_size,
            "normalization_rule_name": "identity",
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "character_coverage": self.character_coverage,
            "byte_fallback": self.byte_fallback,
            "split_digits": self.split_digits,
            "split_by_unicode_script": self.split_by_script,
            "max_sentencepiece_length": self.max_piece_characters,
            "unk_piece": self.unk_piece,
            "unk_id": self.unk_id,
            "bos_piece": self.bos_piece,
            "bos_id": self.bos_id,
            "eos_piece": self.eos_piece,
            "eos_id": self.eos_id,
            "pad_piece": self.pad_piece,
            "pad_id": self.pad_id,
            "control_symbols": list(self.control_symbols),
            "user_defined_symbols": list(self.user_defined_symbols),
            "num_threads": self.num_threads,
        }


def check_options(options: SentencePieceOptions) -> None:
    """Check options that would make the library abort.

    Raises:
        UserError: a size, an id or a piece is invalid.
    """
    if options.vocabulary_size <= options.num_special_pieces:
        raise UserError(
            f"a vocabulary of {options.vocabulary_size:,} pieces is too small",
            why=f"special pieces, symbols and bytes alone need {options.num_special_pieces:,}",
            hint="choose a larger vocabulary",
        )
    if not 0.98 <= options.character_coverage <= 1:
        why = f"got {options.character_coverage}; SentencePiece accepts 0.98 to 1"
        raise UserError("the character coverage is out of range", why=why)
    if not 1 <= options.max_piece_characters <= 512:
        why = f"got {options.max_piece_characters}; SentencePiece accepts 1 to 512"
        raise UserError("the maximum number of characters in a piece is out of range", why=why)
    if options.seeds_a_piece < 2:
        why = f"got {options.seeds_a_piece}; training prunes most seeds, so at least 2 are needed"
        raise UserError("there are too few seeds per piece", why=why)
    if options.unk_id < 0:
        why = "SentencePiece requires one"
        raise UserError("the piece for unknown characters has no id", why=why)
    named = {
        options.unk_piece: options.unk_id,
        options.bos_piece: options.bos_id,
        options.eos_piece: options.eos_id,
        options.pad_piece: options.pad_id,
    }
    ids = [id for id in named.values() if id >= 0]
    pieces = [piece for piece, id in named.items() if id >= 0]
    pieces += [*options.control_symbols, *options.user_defined_symbols]
    if len(named) < 4 or len(set(ids)) != len(ids) or len(set(pieces)) != len(pieces):
        raise UserError("two special pieces have the same name or id")
    if bad := next((p for p in pieces if not p or set(p) & set("\t\n\0 ")), None):
        why = "it is empty or contains white space (SentencePiece spells a space ▁)"
        raise UserError(f"{bad!r} is not a valid piece", why=why)

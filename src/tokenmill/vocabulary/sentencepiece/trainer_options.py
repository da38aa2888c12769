"""What a SentencePiece model is to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tokenmill.errors import UserError
from tokenmill.words.sentencepiece import NormalizationRule, Normalizer, named_normalizer
from tokenmill.words.splits import Split, sentencepiece_split

NO_ID = -1
NUM_BYTES = 256


@dataclass(frozen=True, slots=True)
class SentencePieceOptions:
    """SentencePiece's own options, by longer names; the defaults are its own.

    Source: https://github.com/google/sentencepiece/blob/master/doc/options.md
    """

    model: Literal["bpe", "unigram"]
    vocabulary_size: int
    """Pieces, all special and byte pieces included."""
    normalization: NormalizationRule = "nmt_nfkc"
    add_prefix: bool = True
    """A space before the text (`add_dummy_prefix`)."""
    join_spaces: bool = True
    """One space of several, none at the ends (`remove_extra_whitespaces`)."""
    character_coverage: float = 0.9995
    """Share of the corpus' characters that become pieces; from 0.98 to 1."""
    byte_fallback: bool = False
    """Other characters become bytes, which are 256 pieces more."""
    split_digits: bool = False
    """No piece holds two digits."""
    split_by_script: bool = True
    """No piece holds letters of two scripts."""
    max_piece_characters: int = 16
    unk_piece: str = "<unk>"
    unk_id: int = 0
    bos_piece: str = "<s>"
    bos_id: int = 1
    """-1 for none; so for the next two."""
    eos_piece: str = "</s>"
    eos_id: int = 2
    pad_piece: str = "<pad>"
    pad_id: int = NO_ID
    control_symbols: tuple[str, ...] = ()
    """Pieces that no text becomes, in the next free ids."""
    user_defined_symbols: tuple[str, ...] = ()
    """Pieces that are taken from a text before all others, e.g. `("▁▁", "▁▁▁▁")` for code."""
    seeds_a_piece: int = 5
    """A Unigram model begins with so many seeds a piece, and at most 1,000,000 (the library's own
    number for any size). Fewer ones are more frequent: they give fewer tokens."""
    num_threads: int = 1
    """A Unigram model depends on it; a BPE model does not."""

    @property
    def normalizer(self) -> Normalizer:
        """What a model does to a text first; needs the library."""
        return named_normalizer(self.normalization, self.add_prefix, self.join_spaces)

    @property
    def split(self) -> Split:
        """What words have to be counted with."""
        return sentencepiece_split(self.normalizer)

    @property
    def num_special_pieces(self) -> int:
        """Pieces that do not come from the corpus."""
        ids = (self.unk_id, self.bos_id, self.eos_id, self.pad_id)
        symbols = len(self.control_symbols) + len(self.user_defined_symbols)
        return sum(id >= 0 for id in ids) + symbols + NUM_BYTES * self.byte_fallback

    def trainer_arguments(self) -> dict[str, str | int | float | bool | list[str]]:
        """The library's arguments for words that are already normalized."""
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
    """Refuse what the library would abort on.

    Raises:
        UserError: a size, an id or a piece cannot be.
    """
    if options.vocabulary_size <= options.num_special_pieces:
        raise UserError(
            f"a vocabulary of {options.vocabulary_size:,} pieces is too small",
            why=f"{options.num_special_pieces:,} are special pieces, symbols or bytes",
            hint="choose a larger one",
        )
    if not 0.98 <= options.character_coverage <= 1:
        why = "SentencePiece takes from 0.98 to 1"
        raise UserError(f"character coverage {options.character_coverage} cannot be", why=why)
    if not 1 <= options.max_piece_characters <= 512:
        why = "SentencePiece takes from 1 to 512"
        raise UserError(f"pieces of {options.max_piece_characters} characters cannot be", why=why)
    if options.seeds_a_piece < 2:
        why = "most of them are left out again, so 2 is the least"
        raise UserError(f"{options.seeds_a_piece} seeds a piece are too few", why=why)
    if options.unk_id < 0:
        why = "SentencePiece needs one"
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
        why = "it is empty, or holds white space (SentencePiece spells a space ▁)"
        raise UserError(f"{bad!r} cannot be a piece", why=why)

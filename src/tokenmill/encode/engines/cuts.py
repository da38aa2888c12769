"""Where texts can be cut into chunks, as tables for compiled code.

A text is cut before a space that follows a *solid* character: a letter, digit, punctuation mark or
symbol that stays visible after normalization. Other white space is treated like a space if the
normalizer turns it into one.

A text is also cut between two ASCII characters if the pre-tokenizer always splits there. So
`f(x)`, `x.y` and `x, y` share chunks. BERT puts spaces around every Chinese character, so its texts
are cut before each.
"""

from __future__ import annotations

import string
import unicodedata
from itertools import pairwise, product
from typing import Any

import numpy as np

from tokenmill.core.records import BoolArray
from tokenmill.encode.engines.locality import JOINING, splitting_steps
from tokenmill.encode.tokenizer_json import MARK, Json, matched_contents, normalizers, with_library
from tokenmill.kernels.chunks import NUM_ASCII, NUM_CHARACTERS, Cuts
from tokenmill.kernels.symbols import NOTHING, Alphabet

_LETTERS, _DIGITS, _OTHERS = string.ascii_letters, string.digits, string.punctuation
_VISIBLE = _LETTERS + _DIGITS + _OTHERS
_LINES_AND_TABS = "\t\n\r"
_IDEOGRAPHS = slice(0x4E00, 0xA000)
_FIRST_OF_THREE_BYTES = 0x800
_COMPOSED = "<=>"
"""A combining stroke composes with each of these to a character that is not punctuation."""


def make_cuts(tokenizer: Json, control_tokens: bool) -> Cuts:
    """Return the cuts of a tokenizer that `locality_objection` admits."""
    steps = splitting_steps(tokenizer)
    library = with_library(tokenizer, steps)
    kinds = {step["type"] for step in normalizers(tokenizer)}
    solid = _solid_characters(library.normalizer)
    if "Precompiled" in kinds and not solid[_codes(_VISIBLE)].all():
        solid[:] = False  # another step may produce a character that the table turns into a space
    pairs = np.zeros((NUM_ASCII, NUM_ASCII), np.bool_)
    if "Precompiled" not in kinds and not any(map(_starts_with_space, steps)):
        _add_splits(pairs, steps, library.pre_tokenizer)
    if kinds & {"NFC", "NFKC"}:
        pairs[:, _codes(_COMPOSED)] = False
    for step in normalizers(tokenizer):
        replaced = _codes(step["pattern"].get("String", "")) if step["type"] == "Replace" else []
        pairs[replaced] = pairs[:, replaced] = False
    for space in " " + _LINES_AND_TABS:
        if space == " " or _becomes_space(library.normalizer, space):
            pairs[:, ord(space)] = solid[:NUM_ASCII]
    alone = np.zeros(NUM_CHARACTERS, np.bool_)
    alone[_IDEOGRAPHS] = _isolates_ideographs(normalizers(tokenizer), steps)
    for content in matched_contents(tokenizer, control_tokens):
        alone[[ord(c) for c in content if ord(c) < NUM_CHARACTERS]] = False
        for last, following in pairwise(content):
            pairs[np.ix_(_codes(last), _codes(following))] = False
    return Cuts(pairs, solid, alone)


def _starts_with_space(step: Json) -> bool:
    """Whether a pre-tokenizer adds a space before each chunk."""
    return step["type"] == "Metaspace" or bool(step.get("add_prefix_space"))


def _isolates_ideographs(normalizer: list[Json], steps: list[Json]) -> bool:
    """Whether the steps are BERT's, which put spaces around ideographs and split there."""
    kinds = [step["type"] for step in normalizer + steps]
    bert = kinds == ["BertNormalizer", "BertPreTokenizer"]
    return bert and bool(normalizer[0].get("handle_chinese_chars"))


def _codes(characters: str) -> list[int]:
    """Return the codes of the ASCII characters, in both cases: a normalizer may change the case."""
    variants = characters + characters.lower() + characters.upper()
    return [ord(character) for character in variants if character.isascii()]


def _add_splits(pairs: BoolArray, steps: list[Json], pre_tokenizer: Any) -> None:
    """Ask the library where it splits pairs of characters, if that depends on the pair alone."""
    kinds = {step["type"] for step in steps}
    words, others, spaces = _LETTERS + _DIGITS, _OTHERS, _LINES_AND_TABS
    if kinds & {"ByteLevel", "Split"}:  # 's is one piece, and may join the word before it
        others = others.replace("'", "").replace("|", "")  # so may CLIP's <|endoftext|>
    visible = words + others
    asked = set(product(visible, visible + spaces))
    if "Split" in kinds:  # a word may begin with punctuation, and a run of it may include newlines
        asked &= {*product(_LETTERS, _DIGITS + others + spaces), *product(_DIGITS, others + spaces)}
        asked |= set(product(others, _DIGITS))
    for last, following in asked:
        pieces = pre_tokenizer.pre_tokenize_str(last + following)
        pairs[ord(last), ord(following)] = (0, 2) not in [place for _, place in pieces]


def _becomes_space(normalizer: Any, character: str) -> bool:
    """Whether a normalizer treats a character like a space."""
    made = normalizer and [normalizer.normalize_str(f"x{c}x") for c in (character, " ")]
    return bool(made) and made[0] == made[1]


def _solid_characters(normalizer: Any) -> BoolArray:
    solid = np.zeros(NUM_CHARACTERS, np.bool_)
    end = normalizer.normalize_str("x") if normalizer else "x"
    for code_point in range(NUM_CHARACTERS):
        character = chr(code_point)
        if unicodedata.category(character)[0] not in "LNPS" or character in JOINING + "▁":
            continue
        made = normalizer.normalize_str(character + "x") if normalizer else character + "x"
        left = made.removesuffix(end)
        solid[code_point] = left != made and bool(left) and not (left[-1].isspace() or "▁" in left)
    return solid


def bpe_cuts(
    merges: list[tuple[str, str]], alphabet: Alphabet, marks_spaces: bool, splits: bool
) -> Cuts:
    """Return the cuts of a BPE model that encodes whole texts, or words that begin with ▁.

    `splits` says whether a word begins at every ▁.

    BPE starts with one symbol per character and joins two neighbours at a time: of all neighbours
    in the list of merges, those with the lowest rank, and of these the leftmost. Cuts are safe for
    two reasons, if no merge contains the token of a byte or the unknown token:

    1. **Nothing is ever joined across a cut.** Tokens are spelled with the characters they encode.
       So a merge between characters a and b joins a left part that ends with a and a right part
       that begins with b. If no merge has such parts, the position stays a boundary. The same holds
       next to a character that is unknown or spelled in bytes: no merge contains its symbols.
    2. **The two sides do not affect each other.** Whether two neighbours can be joined depends only
       on them, and the next pair on each side is always its first by rank and position. So the
       merges of the whole text that lie on one side are the merges of that side encoded alone.

    Two more features look across positions. Consecutive unknown characters become one token
    (`fuse_unk`), so there is no cut between two of them. If there is no unknown token, unknown
    characters are dropped, which makes others neighbours, so both sides of a cut must then be
    tokens. With a split at ▁, a word ends there, so the cut is always safe.

    `ignore_merges` and dropout look at whole words, so models with these are not admitted.
    """
    token = alphabet.symbols[:NUM_CHARACTERS] != NOTHING
    falls_back, unknown = alphabet.of_bytes[0] != NOTHING, alphabet.unknown != NOTHING
    junctions = {(left[-1], right[0]) for left, right in merges}
    pairs = _either(token[:NUM_ASCII], falls_back, unknown)
    either = token | token[ord(" ")] if unknown else token & token[ord(" ")]
    solid = either | falls_back
    alone = token | falls_back
    alone[:_FIRST_OF_THREE_BYTES] = False
    for left, right in junctions:
        lefts, rights = (_characters(side, marks_spaces) for side in (left, right))
        ascii_lefts = [character for character in lefts if character < NUM_ASCII]
        for character in rights:
            if character < NUM_ASCII:
                pairs[ascii_lefts, character] = False
            if character == ord(" "):
                solid[[c for c in lefts if c < NUM_CHARACTERS]] = False
            if character < NUM_CHARACTERS:
                alone[character] = False
    if splits:
        pairs[:, ord(" ")] = solid[:] = alone[ord(MARK)] = True
    return Cuts(pairs, solid, alone)


def _either(token: BoolArray, falls_back: np.bool_, unknown: bool) -> BoolArray:
    """Return between which characters only a merge could prevent a cut; shape (n, n)."""
    if falls_back:
        return np.ones((len(token), len(token)), np.bool_)
    if unknown:
        return token[:, None] | token[None, :]
    return token[:, None] & token[None, :]


def _characters(character: str, marks_spaces: bool) -> list[int]:
    """Return the characters of a text that become this character of a token."""
    if not marks_spaces:
        return [ord(character)]
    if character == " ":  # the model never sees a space
        return []
    return [ord(character), ord(" ")] if character == MARK else [ord(character)]

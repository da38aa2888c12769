"""Where texts can be cut for a BPE model that encodes whole texts, or words that begin with ▁.

BPE starts with one symbol per character and joins two neighbours at a time: of all neighbours in
the list of merges, those with the lowest rank, and of these the leftmost. Cuts are safe for two
reasons, if no merge contains the token of a byte or the unknown token:

1. **Nothing is ever joined across a cut.** Tokens are spelled with the characters they encode. So a
   merge between characters a and b joins a left part that ends with a and a right part that begins
   with b. If no merge has such parts, the position stays a boundary. The same holds next to a
   character that is unknown or spelled in bytes, because no merge contains its symbols.
2. **The two sides do not affect each other.** Whether two neighbours can be joined depends only on
   them, and the next pair on each side is always its first by rank and position. So the merges of
   the whole text that lie on one side are the merges of that side encoded alone.

Two more features look across positions. Consecutive unknown characters become one token
(`fuse_unk`), so there is no cut between two of them. If there is no unknown token, unknown
characters are dropped, which makes others neighbours, so both sides of a cut must then be tokens.
With a split at ▁, a word ends there, so the cut is always safe.

`ignore_merges` and dropout look at whole words, so models with these are not admitted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tokenmill.encode.engines.chunks.cuts import NUM_ASCII, NUM_CHARACTERS, Cuts
from tokenmill.encode.engines.native.bpe_gate import MARK
from tokenmill.encode.engines.native.bpe_symbols import NOTHING, Alphabet

BoolArray = npt.NDArray[np.bool_]
_FIRST_OF_THREE_BYTES = 0x800


def bpe_cuts(
    merges: list[tuple[str, str]], alphabet: Alphabet, marks_spaces: bool, splits: bool
) -> Cuts:
    """Return the cuts of a model; `splits` says whether a word begins at every ▁."""
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

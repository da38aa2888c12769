"""Where texts may be cut for a BPE model that is given whole texts, or words that begin with ▁.

BPE begins with one symbol for each character, and joins two neighbours at a time: of all neighbours
that the list of merges names, those of the lowest rank, and of these the leftmost. Two claims make
cuts safe; in both, no merge has the token of a byte or of what is unknown as a part.

1. **Nothing is ever joined over a cut.** Tokens are spelled with the characters that they stand
   for. So what a merge joins at a place between characters a and b are a left side that ends with
   a and a right side that begins with b. Where no merge has such sides, the place is still a
   boundary of symbols at the end; the same is true beside a character that is unknown or spelled
   in bytes, whose symbols are in no merge.
2. **What is done on one side does not depend on the other.** Whether two neighbours can be joined
   depends on these two alone, and the next pair on each side is the least by rank and place among
   the pairs of that side, whatever has been done on the other. So the merges of the whole text,
   those of one side left out, are the merges of the other side encoded alone.

Two more things look over a place: unknown characters beside each other become one token
(`fuse_unk`), so there is no cut between two of them; and characters that no token stands for are
dropped where there is no unknown token, which makes neighbours of others, so both sides of such a
cut must be tokens. A split at ▁ ends a word, and nothing looks over that.

Whole words that are tokens (`ignore_merges`) and dropout look over all places: models with those
are not admitted.
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
    """The cuts of a model; `splits` says that a word begins at every ▁."""
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
    """Shape (n, n): between which characters nothing but a merge looks."""
    if falls_back:
        return np.ones((len(token), len(token)), np.bool_)
    if unknown:
        return token[:, None] | token[None, :]
    return token[:, None] & token[None, :]


def _characters(character: str, marks_spaces: bool) -> list[int]:
    """What becomes this character of a token: a space becomes a ▁."""
    if not marks_spaces:
        return [ord(character)]
    if character == " ":  # no space is left when the model begins
        return []
    return [ord(character), ord(" ")] if character == MARK else [ord(character)]

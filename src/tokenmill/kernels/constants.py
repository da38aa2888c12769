"""Numbers that compiled code shares with modules that import no numba."""

from __future__ import annotations

FIXED, REORDERED, COMPOSED = range(3)
"""The effect of NFC on a character: FIXED, unchanged; REORDERED, may swap with an adjacent
REORDERED character; COMPOSED, anything else. A text without COMPOSED characters is in NFC if no two
REORDERED characters are adjacent."""

JOIN_SPACES, STRIP_END, PREFIX, AT_START = (1 << bit for bit in range(4))
"""Rules for spaces: join several to one; strip white space at the end; add a ▁ before a text that
does not begin with one; leave out a text whose first character is dropped, because whether it gets
that ▁ depends on which step drops the character."""

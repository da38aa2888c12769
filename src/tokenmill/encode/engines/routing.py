"""Route documents that an engine is known to get wrong to the reference.

gigatoken uses the character classes of Unicode 17, the references those of Unicode 16 or older.
The table below lists the differences: all 1,112,064 code points were tried in context
(`bench/code_points.py`). fastokens knows the contractions 's and 'S, but not the long s, which is
equal to them under case folding. It matches added tokens in one pass, the reference in two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tokenmill.boundaries import with_documents
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.gate import overlapping_tokens, split_patterns
from tokenmill.records import TokenBatch

_UNICODE_17 = [
    *((0x88F, 0x88F), (0xC5C, 0xC5C), (0xCDC, 0xCDC), (0xA7CE, 0xA7CF), (0xA7D2, 0xA7D2)),
    *((0xA7D4, 0xA7D4), (0xA7F1, 0xA7F1), (0x10940, 0x10959), (0x10EC5, 0x10EC7)),
    *((0x11DB0, 0x11DDB), (0x11DE0, 0x11DE9), (0x16EA0, 0x16EB8), (0x16EBB, 0x16ED3)),
    *((0x16FF2, 0x16FF6), (0x187F8, 0x187FF), (0x18D09, 0x18D1E), (0x18D80, 0x18DF2)),
    *((0x1E6C0, 0x1E6DE), (0x1E6E0, 0x1E6E2), (0x1E6E4, 0x1E6E5), (0x1E6E7, 0x1E6ED)),
    *((0x1E6F0, 0x1E6F4), (0x1E6FE, 0x1E6FF), (0x2B73A, 0x2B73F), (0x2CEA2, 0x2CEAD)),
    (0x323B0, 0x33479),
]


def fastokens_routes(tokenizer: dict[str, Any]) -> list[str]:
    """Return the strings in documents that fastokens may get wrong."""
    contractions = any("(?i:'s" in pattern for pattern in split_patterns(tokenizer))
    tokens = overlapping_tokens(tokenizer.get("added_tokens") or [])
    return [*tokens, "'\u017f"] if contractions else tokens


def gigatoken_routes(tokenizer: dict[str, Any]) -> re.Pattern[str] | None:
    """Return a pattern for documents that gigatoken gets wrong; None if there are none."""
    if tokenizer["model"].get("byte_fallback"):
        return None
    return re.compile("[" + "".join(f"{chr(a)}-{chr(b)}" for a, b in _UNICODE_17) + "]")


class Routes(Protocol):
    """Finds the texts that an engine is known to get wrong."""

    def search(self, text: str, /) -> object:
        """Return a true value if the engine gets this text wrong."""


class RoutedEngine:
    """An engine that routes some documents to its reference, which is loaded on first use."""

    def __init__(
        self,
        engine: Engine,
        routes: Routes,
        load_reference: Callable[[], Engine],
        *,
        in_ascii: bool = False,
    ) -> None:
        """`in_ascii` says whether `routes` can match ASCII texts; if not, they are not searched."""
        self.name = engine.name
        self.version = engine.version
        self._engine = engine
        self._routes = routes
        self._load_reference = load_reference
        self._reference: Engine | None = None
        self._in_ascii = in_ascii

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text; those that the routes find are encoded by the reference."""
        search = self._routes.search
        in_ascii = self._in_ascii
        routed = [
            i for i, text in enumerate(texts) if (in_ascii or not text.isascii()) and search(text)
        ]
        if not routed:
            return self._engine.encode(texts)
        self._reference = self._reference or self._load_reference()
        skipped = set(routed)
        exact = self._reference.encode([texts[i] for i in routed])
        plain = self._engine.encode(["" if i in skipped else t for i, t in enumerate(texts)])
        return with_documents(plain, routed, exact)

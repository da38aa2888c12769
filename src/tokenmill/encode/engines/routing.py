"""Route documents that an engine is known to get wrong to the reference.

fastokens knows the contractions 's and 'S, but not the long s, which is equal to them under case
folding. It matches added tokens in one pass, the reference in two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tokenmill.core.records import TokenBatch
from tokenmill.encode.boundaries import with_documents
from tokenmill.encode.engine import Engine
from tokenmill.encode.engines.gate import overlapping_tokens, split_patterns


def fastokens_routes(tokenizer: dict[str, Any]) -> list[str]:
    """Return the strings in documents that fastokens may get wrong."""
    contractions = any("(?i:'s" in pattern for pattern in split_patterns(tokenizer))
    tokens = overlapping_tokens(tokenizer.get("added_tokens") or [])
    return [*tokens, "'\u017f"] if contractions else tokens


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

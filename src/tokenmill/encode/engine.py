"""Engines and the reference, as protocols, and the encode stage, which checks their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from tokenmill.core.errors import EngineError
from tokenmill.core.records import Int64Array, TokenBatch, UInt32Array
from tokenmill.encode.boundaries import join_batches
from tokenmill.encode.tokenizer_bounds import library_failures

T = TypeVar("T")

REPORT = (
    "use the engine `reference` (in a build: --engine reference --overwrite), and report the text"
)
"""The hint for an engine that fails or gives wrong ids."""

ALONE_CHARACTERS = 16 << 20
"""Longer documents are encoded one by one, so that their memory is freed before the next call."""


class TextError(EngineError):
    """The user's own tokenizer failed on a text, or did not return valid ids."""

    text: str = ""


class Engine(Protocol):
    """Encodes batches of documents, without the special tokens of the post-processor."""

    name: str
    version: str

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text, in order."""


class Reference(Engine, Protocol):
    """The library that a tokenizer's file was made for; its ids are right by definition."""

    largest_id: int
    """The largest id, including added tokens."""
    special_tokens: dict[str, int]
    """Ids of control tokens by content. In texts they are matched only in `control` mode."""
    unk_id: int | None
    """The id of the unknown token, if there is one."""
    prefix: tuple[int, ...]
    """Ids that the tokenizer's post-processor puts before a document."""
    suffix: tuple[int, ...]
    """Ids that it puts after a document."""
    may_refuse: bool = False
    """Whether `encode` raises a TextError for some texts."""
    can_decode: bool = True
    own_end: int | None = None
    """The end-of-document token, if the user's own code appends it to every text. `encode` removes
    it, because the build appends one."""

    def token_id(self, token: str) -> int | None:
        """Return the id of a token, or None if it is not in the vocabulary."""

    def normalize(self, text: str) -> str:
        """Return what the normalizer makes of a text; the text itself if there is none."""
        return text

    def encode_with_offsets(self, text: str) -> tuple[UInt32Array, Int64Array, Int64Array]:
        """Return the ids of a text, and for each token its first character and one past its last.

        All three arrays have shape (num_tokens,).
        """

    def twin(self) -> Engine | None:
        """Return a copy for audits; None if the tokenizer can be loaded again from its file."""
        return None

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of some ids, including special tokens."""


def call_library(step: Callable[[str], T], text: str) -> T:
    """Call a function of the `tokenizers` library.

    Raises:
        EngineError: it failed on the text.
    """

    def failed(error: BaseException) -> EngineError:
        why = f"{type(error).__name__}: {error}"
        return EngineError("the tokenizers library failed", where=f"text {text[:80]!r}", why=why)

    with library_failures(failed):
        return step(text)


class Encoder:
    """Calls an engine, converts its failures to EngineError, and checks its results."""

    def __init__(self, engine: Engine, largest_id: int) -> None:
        self.name = engine.name
        self.version = engine.version
        self._engine = engine
        self._largest_id = largest_id

    def encode(self, texts: Sequence[str]) -> TokenBatch:
        """Return the ids of every text.

        Raises:
            EngineError: the engine failed, or returned invalid ids.
        """
        long = [i for i, text in enumerate(texts) if len(text) > ALONE_CHARACTERS]
        if not long:
            return self._call(texts)
        parts, start = [], 0
        for i in long:
            parts += [self._call(texts[start:i])] if i > start else []
            parts.append(self._call(texts[i : i + 1]))
            start = i + 1
        parts += [self._call(texts[start:])] if start < len(texts) else []
        return join_batches(parts)

    def _call(self, texts: Sequence[str]) -> TokenBatch:
        def failed(error: BaseException) -> EngineError:
            what = f"{self.name} failed on a batch of {len(texts)} documents"
            return EngineError(what, why=f"{type(error).__name__}: {error}", hint=REPORT)

        with library_failures(failed):
            batch = self._engine.encode(texts)
        self._check(texts, batch)
        return batch

    def _check(self, texts: Sequence[str], batch: TokenBatch) -> None:
        offsets, ids = batch.offsets, batch.ids
        right = (
            len(offsets) == len(texts) + 1
            and offsets[0] == 0
            and offsets[-1] == len(ids)
            and bool((offsets[1:] >= offsets[:-1]).all())
            and (not len(ids) or int(ids.max()) <= self._largest_id)
        )
        if not right:
            raise EngineError(
                f"{self._engine.name} returned invalid ids",
                why=f"it returned {len(offsets) - 1} documents for {len(texts)}, or an id above "
                f"{self._largest_id}",
                hint=REPORT,
            )

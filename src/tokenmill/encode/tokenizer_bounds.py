"""Limits that a tokenizer must keep before a library may load it.

Libraries make tables as long as the largest id, and fail on damaged files with errors of any kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tokenmill.errors import TokenmillError, UserError

_WHAT = "cannot load the tokenizer"
LARGEST_ID = (1 << 31) - 1
FREE_IDS = 1 << 20
"""Ids below this are allowed in a file of any size: a table of them takes a few megabytes."""
MAX_STEP_CHARACTERS = 1 << 16
"""Of a pattern, or of any other string of a step; published patterns have at most 600."""
MAX_DEPTH = 100
"""Of steps inside steps; `tokenizers` itself reads no more than 128."""


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[Any] = msgspec.field(default_factory=list)
    """A list for Unigram: its ids are places."""


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _Tokenizer(msgspec.Struct):
    """What has limits in a tokenizer.json; the rest is passed over."""

    model: _Model
    added_tokens: list[_AddedToken] | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None


def cannot_load(origin: str, why: str, hint: str = "") -> UserError:
    """The error for a tokenizer that is refused."""
    return UserError(_WHAT, where=origin, why=why, hint=hint)


@contextmanager
def load_failures(origin: str, what: str = _WHAT) -> Iterator[None]:
    """Turn any failure of a library into a UserError; a Rust panic is not an `Exception`."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, TokenmillError):
        raise
    except BaseException as error:
        why = str(error) or type(error).__name__
        raise UserError(what, where=origin, why=why) from error


def check_tokenizer_json(data: bytes, origin: str) -> None:
    """Check ids, patterns and nesting of a tokenizer.json.

    Raises:
        UserError: one of them is out of bounds, or has another type.
    """
    try:
        found = msgspec.json.decode(data, type=_Tokenizer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise cannot_load(origin, str(error)) from error
    vocab = found.model.vocab
    ids = list(vocab.items()) if isinstance(vocab, dict) else []
    ids += [(token.content, token.id) for token in found.added_tokens or ()]
    check_ids(ids, len(data), origin)
    for step in (found.normalizer, found.pre_tokenizer, found.decoder):
        _check_step(step, origin)


def check_ids(ids: list[tuple[Any, int]], num_bytes: int, origin: str) -> None:
    """Raise a UserError when an id is negative, 2^31 or more, or far above the file's size."""
    limit = min(max(FREE_IDS, num_bytes), LARGEST_ID)
    for extreme in (min, max):
        token, token_id = extreme(ids, key=lambda pair: pair[1], default=("", 0))
        if not 0 <= token_id <= limit:
            why = f"id {token_id} of {str(token)[:80]!r}; a file of this size has 0 to {limit}"
            raise cannot_load(origin, why)


def _check_step(value: object, origin: str, depth: int = 0) -> None:
    if isinstance(value, str) and len(value) > MAX_STEP_CHARACTERS:
        why = f"a step has a string of {len(value):,} characters; the limit is "
        raise cannot_load(origin, f"{why}{MAX_STEP_CHARACTERS:,}")
    if depth > MAX_DEPTH:
        raise cannot_load(origin, f"steps are nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        # The table of a normalizer is not a pattern; it takes some 300 kB.
        parts = [part for name, part in value.items() if name != "precompiled_charsmap"]
    else:
        parts = value if isinstance(value, list) else []
    for part in parts:
        _check_step(part, origin, depth + 1)

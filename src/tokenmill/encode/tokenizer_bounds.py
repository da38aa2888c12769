"""Check the limits of a tokenizer before a library loads it.

Libraries allocate tables as long as the largest id, and raise all kinds of errors on damaged files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from tokenmill.core.errors import TokenmillError, UserError

_WHAT = "cannot load the tokenizer"
LARGEST_ID = (1 << 31) - 1
FREE_IDS = 1 << 20
"""Ids below this are allowed in a file of any size; a table for them takes a few megabytes."""
MAX_STEP_CHARACTERS = 1 << 16
"""The longest pattern or other string of a step; published patterns have at most 600."""
MAX_DEPTH = 100
"""The deepest nesting of steps; `tokenizers` itself reads at most 128 levels."""


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[Any] = msgspec.field(default_factory=list)
    """Ids by token; for Unigram, a list ordered by id."""


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _Tokenizer(msgspec.Struct):
    """The parts of a tokenizer.json that have limits; decoding skips the rest."""

    model: _Model
    added_tokens: list[_AddedToken] | None = None
    normalizer: dict[str, Any] | None = None
    pre_tokenizer: dict[str, Any] | None = None
    decoder: dict[str, Any] | None = None


def cannot_load(origin: str, why: str, hint: str = "") -> UserError:
    """Return the error for a tokenizer that is refused."""
    return UserError(_WHAT, where=origin, why=why, hint=hint)


@contextmanager
def library_failures(made: Callable[[BaseException], Exception]) -> Iterator[None]:
    """Raise what `made` returns for a failure of a library, also for a Rust panic."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, MemoryError, TokenmillError):
        raise
    except BaseException as error:  # a Rust panic is not an Exception
        raise made(error) from error


def load_failures(origin: str, what: str = _WHAT) -> AbstractContextManager[None]:
    """Convert any failure of a library to a UserError."""
    return library_failures(
        lambda error: UserError(what, where=origin, why=str(error) or type(error).__name__)
    )


def check_tokenizer_json(data: bytes, origin: str) -> None:
    """Check the ids, patterns and nesting of a tokenizer.json.

    Raises:
        UserError: one of them exceeds a limit or has the wrong type, or two tokens have one id.
    """
    try:
        found = msgspec.json.decode(data, type=_Tokenizer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise cannot_load(origin, str(error)) from error
    vocab = found.model.vocab
    if isinstance(vocab, list):
        pieces = (piece if isinstance(piece, list) else [] for piece in vocab)
        vocab = {str(piece[0]): index for index, piece in enumerate(pieces) if piece}
    ids = [*vocab.items(), *((token.content, token.id) for token in found.added_tokens or ())]
    check_ids(ids, len(data), origin)
    tokens: dict[int, str] = {}
    have_one_id = len({*ids}) != len({token_id for _, token_id in ids})
    for token, token_id in ids if have_one_id else ():
        if (other := tokens.setdefault(token_id, token)) != token:
            raise cannot_load(origin, f"{other!r} and {token!r} have the same id, {token_id}")
    for step in (found.normalizer, found.pre_tokenizer, found.decoder):
        _check_step(step, origin)


def check_ids(ids: list[tuple[Any, int]], num_bytes: int, origin: str) -> None:
    """Raise a UserError if an id is negative, 2^31 or more, or far above the file's size."""
    limit = min(max(FREE_IDS, num_bytes), LARGEST_ID)
    numbers = [token_id for _, token_id in ids]
    for extreme in (min(numbers, default=0), max(numbers, default=0)):
        if not 0 <= extreme <= limit:
            token = ids[numbers.index(extreme)][0]
            why = (
                f"the id of {str(token)[:80]!r} is {extreme}; "
                f"a file of this size can have ids from 0 to {limit}"
            )
            raise cannot_load(origin, why)


def _check_step(value: object, origin: str, depth: int = 0) -> None:
    if isinstance(value, str) and len(value) > MAX_STEP_CHARACTERS:
        why = f"a step has a string of {len(value):,} characters; the limit is "
        raise cannot_load(origin, f"{why}{MAX_STEP_CHARACTERS:,}")
    if depth > MAX_DEPTH:
        raise cannot_load(origin, f"steps are nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        # The table of a normalizer is not a pattern and takes about 300 kB.
        parts = [part for name, part in value.items() if name != "precompiled_charsmap"]
    else:
        parts = value if isinstance(value, list) else []
    for part in parts:
        _check_step(part, origin, depth + 1)

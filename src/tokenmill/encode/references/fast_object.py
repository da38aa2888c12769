"""Objects of `tokenizers`, and those with one behind them: as good as a file, if that is all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenmill.encode.references.python_object import (
    LARGEST_ID,
    TokenizerObject,
    checked_ids,
    class_name,
)
from tokenmill.errors import UserError
from tokenmill.user_code import describe_failure

PROBES = (
    "The Quick  BROWN fox",
    " it's 1,234.50!\n\n\tA tab ",
    "Ünïcödé: Straße, e\u0301, ﬁ",
    "日本語 мир 😀",
)
"""What Python code around an encoder most often changes: letter case, spaces, accents."""


def backend_of(tokenizer: Any) -> Any:
    """The `tokenizers.Tokenizer` that an object is or has behind it; None where there is none.

    Raises:
        UserError: it is of `tokenizers`, and no tokenizer: a model, what encoding returned.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    backend = tokenizer if backend is None else backend
    if type(backend).__module__.partition(".")[0] != "tokenizers":
        return None
    backend = getattr(backend, "_tokenizer", backend)  # of tokenizers.implementations
    if not callable(getattr(backend, "to_str", None)):
        raise UserError(
            "not a tokenizer",
            where=class_name(backend),
            why="it is a part of a tokenizer, or a tokenizer's result",
            hint="give the tokenizers.Tokenizer",
        )
    return backend


def file_of(backend: Any) -> bytes:
    """The tokenizer.json of an object, without truncation and padding.

    `transformers` leaves these behind from the call before, so they are not the tokenizer's.

    Raises:
        UserError: a part of it is Python code, which no file holds.
    """
    try:
        if backend.truncation or backend.padding:
            backend = type(backend).from_str(backend.to_str())
            backend.no_truncation()
            backend.no_padding()
        # Pretty, as files are: an object that was read from one then has the same digest.
        return bytes(backend.to_str(pretty=True).encode())
    except Exception as error:  # the library raises bare Exception
        raise UserError(
            "cannot save the tokenizer as tokenizer.json",
            where=class_name(backend),
            why=describe_failure(error),
            hint="give an object with a method encode(text) that calls it",
        ) from error


def objection_to_backend(tokenizer: Any, backend: Any) -> str:
    """Why an object is more than what stands behind it; "" where both encode some strings alike."""
    if tokenizer is backend or not callable(getattr(tokenizer, "encode", None)):
        return ""
    options = TokenizerObject(tokenizer).options(control_tokens=False)
    with _without_settings(backend):
        for text in PROBES:
            expected = _ids_or_none(backend, text, {"add_special_tokens": False})
            if _ids_or_none(tokenizer, text, options) != expected:
                return (
                    f"its own encode gives {text!r} other ids than the tokenizers.Tokenizer "
                    "behind it, so it is asked itself"
                )
    return ""


def _ids_or_none(tokenizer: Any, text: str, options: dict[str, Any]) -> list[int] | None:
    """The ids of a text; None where the object fails on it."""
    try:
        ids = checked_ids(tokenizer.encode(text, **options), LARGEST_ID)
    except Exception:  # of the object's own code
        return None
    return list(map(int, ids))


@contextmanager
def _without_settings(backend: Any) -> Iterator[None]:
    """An object's settings put aside, and put back: its user may go on with it."""
    truncation, padding = backend.truncation, backend.padding
    reads_as_text = backend.encode_special_tokens
    backend.no_truncation()
    backend.no_padding()
    try:
        yield
    finally:
        backend.encode_special_tokens = reads_as_text
        if truncation:
            backend.enable_truncation(**truncation)
        if padding:
            backend.enable_padding(**padding)

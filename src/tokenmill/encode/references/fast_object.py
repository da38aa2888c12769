"""Convert objects of `tokenizers`, and objects that only wrap one, to a tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.user_code import describe_failure
from tokenmill.encode.references.python_object import (
    LARGEST_ID,
    TokenizerObject,
    checked_ids,
    class_name,
)

PROBES = (
    "The Quick  BROWN fox",
    " it's 1,234.50!\n\n\tA tab ",
    "Ünïcödé: Straße, e\u0301, ﬁ",
    "日本語 мир 😀",
)
"""Texts that reveal common changes by wrapper code: letter case, spaces, accents."""


def backend_of(tokenizer: Any) -> Any:
    """Return the `tokenizers.Tokenizer` that an object is or wraps; None if there is none.

    Raises:
        UserError: the object is another one of `tokenizers`, such as a model or an encoding.
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
            why="it is a part of a tokenizer, or the result of one",
            hint="pass the tokenizers.Tokenizer",
        )
    return backend


def file_of(backend: Any) -> bytes:
    """Return the tokenizer.json of an object, without truncation and padding.

    Those settings are leftovers of the last call in `transformers`, not part of the tokenizer.

    Raises:
        UserError: a part of the tokenizer is Python code, which cannot be saved.
    """
    try:
        if backend.truncation or backend.padding:
            backend = type(backend).from_str(backend.to_str())
            backend.no_truncation()
            backend.no_padding()
        # Pretty like most files: an object loaded from a file then has the file's digest.
        return bytes(backend.to_str(pretty=True).encode())
    except Exception as error:  # the library raises bare Exception
        raise UserError(
            "cannot save the tokenizer as tokenizer.json",
            where=class_name(backend),
            why=describe_failure(error),
            hint="pass a Python object with a method encode(text) that calls the tokenizer",
        ) from error


def objection_to_backend(tokenizer: Any, backend: Any) -> str:
    """Return why an object differs from the backend it wraps; "" if both encode texts alike."""
    if tokenizer is backend or not callable(getattr(tokenizer, "encode", None)):
        return ""
    options = TokenizerObject(tokenizer).options(control_tokens=False)
    with _without_settings(backend):
        for text in PROBES:
            expected = _ids_or_none(backend, text, {"add_special_tokens": False})
            if _ids_or_none(tokenizer, text, options) != expected:
                return (
                    f"its encode({text!r}) differs from that of the tokenizers.Tokenizer it "
                    "wraps, so tokenmill calls its encode"
                )
    return ""


def _ids_or_none(tokenizer: Any, text: str, options: dict[str, Any]) -> list[int] | None:
    """Return the ids of a text, or None if the object fails."""
    try:
        ids = checked_ids(tokenizer.encode(text, **options), LARGEST_ID)
    except Exception:  # from the user's code
        return None
    return list(map(int, ids))


@contextmanager
def _without_settings(backend: Any) -> Iterator[None]:
    """Disable an object's truncation and padding, and restore its settings afterwards."""
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

"""From a tokenizer's source to an object, and from an object to what a dataset stores.

Objects of `tokenizers`, and objects that only wrap one, become a tokenizer.json; for others, a
description is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command, installed_version
from tokenmill.core.user_code import (
    NAMED,
    cannot_get,
    describe_failure,
    imported,
    pickled,
    unpickled,
)
from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import TextError
from tokenmill.encode.references.python_object import (
    LARGEST_ID,
    TokenizerObject,
    checked_ids,
    class_name,
)

NOUN = "tokenizer"
FOLDER = "transformers:"
ANSWER_STEP = 5
"""Every fifth of the fixed strings goes into the digest of answers."""

PROBES = (
    "The Quick  BROWN fox",
    " it's 1,234.50!\n\n\tA tab ",
    "Ünïcödé: Straße, e\u0301, ﬁ",
    "日本語 мир 😀",
)
"""Texts that reveal common changes by wrapper code: letter case, spaces, accents."""


def make_tokenizer(source: str) -> Any:
    """Create the tokenizer of `python:module:name`, `transformers:FOLDER` or `pickle:BASE64`.

    Raises:
        UserError: the tokenizer cannot be imported, loaded or unpickled.
    """
    if source.startswith(NAMED):
        return _imported(source)
    if source.startswith(FOLDER):
        return _from_folder(source.removeprefix(FOLDER))
    return unpickled(source, NOUN)


def _imported(source: str) -> Any:
    """Import an object from the user's module; call it if it is a factory."""
    found = imported(source, NOUN, "python:my_package.tokenizers:build")
    try:
        if isinstance(found, type) or not hasattr(found, "encode"):
            found = found()
    except (Exception, SystemExit) as error:
        raise cannot_get(source, NOUN, error) from error
    return found


def _from_folder(folder: str) -> Any:
    """Load a folder with `transformers`, without running code from the folder."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise UserError(
            "the tokenizer needs transformers",
            where=folder,
            why="its folder has no tokenizer.json, and transformers is not installed",
            hint=install_command("hf"),
        ) from error
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = (
            "name a tokenizer.json, its folder, a .tiktoken or .model file, or a model on the Hub"
        )
        raise UserError(
            "transformers cannot load the tokenizer", where=folder, why=why, hint=hint
        ) from error


def pickled_source(tokenizer: Any) -> str:
    """Pickle a tokenizer for another process of the same user.

    Raises:
        UserError: the tokenizer cannot be pickled.
    """
    return pickled(tokenizer, NOUN, class_name(tokenizer))


def library_version(tokenizer: Any) -> str:
    """Return the version of the package that defines a tokenizer's class, or ""."""
    try:
        return installed_version(type(tokenizer).__module__.partition(".")[0])
    except ModuleNotFoundError:
        return ""


def describe(asked: TokenizerObject) -> bytes:
    """Return the description of a Python tokenizer that a dataset stores.

    It identifies the tokenizer, but cannot recreate it. It is JSON with the class, the version of
    its library, the largest id, the special tokens, and two SHA-256 digests: of the vocabulary,
    and of the ids for fixed strings ("error" for strings on which it failed).

    Raises:
        UserError: the tokenizer fails on all strings.
    """
    answers = _answers(asked)
    facts = {
        "format": "tokenmill-python-tokenizer",
        "class": class_name(asked.tokenizer),
        "library_version": library_version(asked.tokenizer),
        "largest_id": asked.largest_id,
        "special_tokens": asked.special_tokens,
        "vocabulary_sha256": _sha256(asked.vocabulary),
        "num_answers": len(answers),
        "answers_sha256": _sha256(answers),
    }
    return msgspec.json.format(msgspec.json.encode(facts, order="sorted"), indent=2) + b"\n"


def _answers(asked: TokenizerObject) -> list[list[int] | str]:
    options = asked.options(control_tokens=False)
    answers: list[list[int] | str] = []
    failure: TextError | None = None
    for text in adversarial_texts(asked.special_tokens)[::ANSWER_STEP]:
        try:
            answers.append(asked.encode(text, options).tolist())
        except TextError as error:
            answers.append("error")
            failure = error
    if failure and all(answer == "error" for answer in answers):
        where, why = class_name(asked.tokenizer), failure.why
        hint = "a tokenizer must have a method encode(text) that returns ids"
        raise UserError("the tokenizer fails on every text", where=where, why=why, hint=hint)
    return answers


def differences(stored: bytes, found: bytes) -> list[str]:
    """Return the differences between two descriptions, except for the library's version.

    Raises:
        UserError: the stored description is damaged.
    """
    try:
        before, now = (msgspec.json.decode(data, type=dict[str, Any]) for data in (stored, found))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError("the tokenizer's description is damaged", why=str(error)) from error
    keys = sorted({*before, *now} - {"library_version"})
    return [
        f"{key}: was {str(before.get(key))[:200]}, is now {str(now.get(key))[:200]}"
        for key in keys
        if before.get(key) != now.get(key)
    ]


def folder_source(folder: Path) -> str:
    """Return the source of a tokenizer that transformers loads from a folder."""
    return FOLDER + str(folder.resolve())


def _sha256(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()


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

"""Where a Python tokenizer comes from, how another process gets it, and what is kept of it."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import TextError
from tokenmill.encode.references.python_object import (
    TokenizerObject,
    class_name,
)
from tokenmill.errors import UserError
from tokenmill.installed import installed_version
from tokenmill.user_code import NAMED, cannot_get, imported, pickled, unpickled

NOUN = "tokenizer"
FOLDER = "transformers:"
ANSWER_STEP = 5
"""Of the fixed strings, every fifth is asked for the digest of answers."""


def make_tokenizer(source: str) -> Any:
    """The tokenizer of `python:module:name`, `transformers:FOLDER` or `pickle:BASE64`.

    Raises:
        UserError: it cannot be made.
    """
    if source.startswith(NAMED):
        return _imported(source)
    if source.startswith(FOLDER):
        return _from_folder(source.removeprefix(FOLDER))
    return unpickled(source, NOUN)


def _imported(source: str) -> Any:
    """What a user's own module holds under a name, or what the callable there makes."""
    found = imported(source, NOUN, "python:my_package.tokenizers:build")
    try:
        if isinstance(found, type) or not hasattr(found, "encode"):
            found = found()
    except (Exception, SystemExit) as error:
        raise cannot_get(source, NOUN, error) from error
    return found


def _from_folder(folder: str) -> Any:
    """What `transformers` makes of a folder, without any code from there."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise UserError(
            "the tokenizer needs transformers",
            where=folder,
            why="it has no tokenizer.json, which would not need transformers",
            hint="pip install 'tokenmill[hf]'",
        ) from error
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        hint = "give tokenizer.json, its folder, a .tiktoken or .model file, or a Hub name"
        raise UserError(
            "transformers cannot load the tokenizer", where=folder, why=why, hint=hint
        ) from error


def pickled_source(tokenizer: Any) -> str:
    """A tokenizer for another process of this user's.

    Raises:
        UserError: it cannot be pickled.
    """
    return pickled(tokenizer, NOUN, class_name(tokenizer))


def library_version(tokenizer: Any) -> str:
    """The version of the distribution that a tokenizer's class is of, or ""."""
    try:
        return installed_version(type(tokenizer).__module__.partition(".")[0])
    except ModuleNotFoundError:
        return ""


def describe(asked: TokenizerObject) -> bytes:
    """What a dataset keeps of a Python tokenizer: enough to know it again, never to make it.

    JSON: class, library's version, largest id, special tokens, and two SHA-256 digests: of its
    vocabulary, and of its answers to fixed strings ("error" where it raised).

    Raises:
        UserError: it answers none of them.
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
        raise UserError("the tokenizer encodes nothing", where=where, why=why, hint=hint)
    return answers


def differences(stored: bytes, found: bytes) -> list[str]:
    """What two descriptions differ in; another version of a library is another answer at most.

    Raises:
        UserError: the stored one is no description.
    """
    try:
        before, now = (msgspec.json.decode(data, type=dict[str, Any]) for data in (stored, found))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError("the tokenizer's description is damaged", why=str(error)) from error
    keys = sorted({*before, *now} - {"library_version"})
    return [
        f"{key}: {str(before.get(key))[:200]}, and now {str(now.get(key))[:200]}"
        for key in keys
        if before.get(key) != now.get(key)
    ]


def folder_source(folder: Path) -> str:
    """The source of a tokenizer that transformers makes of a folder."""
    return FOLDER + str(folder.resolve())


def _sha256(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()

"""Where a Python tokenizer comes from, how another process gets it, and what is kept of it."""

from __future__ import annotations

import base64
import hashlib
import importlib
import importlib.metadata
import io
import pickle
import types
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import TextError
from tokenmill.encode.references.python_object import (
    TokenizerObject,
    class_name,
    describe_failure,
)
from tokenmill.errors import UserError

NAMED = "python:"
FOLDER = "transformers:"
PICKLED = "pickle:"
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
    return _unpickled(source.removeprefix(PICKLED))


def _imported(source: str) -> Any:
    """What a user's own module holds under a name, or what the callable there makes."""
    module_name, _, name = source.removeprefix(NAMED).partition(":")
    if not module_name or not name:
        hint = "such as python:my_package.tokenizers:build"
        raise UserError(
            "a Python tokenizer is named as python:module:name", where=source, hint=hint
        )
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
        if isinstance(found, type) or not hasattr(found, "encode"):
            found = found()
    except (Exception, SystemExit) as error:
        hint = "the module must be installed, or its folder on PYTHONPATH"
        raise UserError(
            "cannot get the tokenizer", where=source, why=describe_failure(error), hint=hint
        ) from error
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


class _Pickler(pickle.Pickler):
    """Refuses what another process would look for in a script that it does not run."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value.__qualname__} is defined in the script that runs")
        return NotImplemented


def pickled_source(tokenizer: Any) -> str:
    """A tokenizer for another process of this user's: base64 of its pickle.

    What is defined in the running script or notebook is sent by value where dill is installed.

    Raises:
        UserError: it cannot be pickled.
    """
    try:
        data = io.BytesIO()
        _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(tokenizer)
        found = data.getvalue()
    except Exception as error:
        found = _by_value(tokenizer, error)
    return PICKLED + base64.b64encode(found).decode()


def _by_value(tokenizer: Any, why: Exception) -> bytes:
    try:
        import dill

        return bytes(dill.dumps(tokenizer, recurse=True))
    except Exception:
        raise UserError(
            "the tokenizer cannot be sent to worker processes",
            where=class_name(tokenizer),
            why=describe_failure(why),
            hint="name it as python:module:name, or run with --workers 1 in this process",
        ) from why


def _unpickled(data: str) -> Any:
    try:
        return pickle.loads(base64.b64decode(data))  # noqa: S301 - from our own parent process
    except Exception as error:
        raise UserError(
            "the tokenizer cannot be recreated in a worker process",
            why=describe_failure(error),
            hint="name it as python:module:name, or run with --workers 1 in the calling process",
        ) from error


def library_version(tokenizer: Any) -> str:
    """The version of the distribution that a tokenizer's class is of, or ""."""
    try:
        return importlib.metadata.version(type(tokenizer).__module__.partition(".")[0])
    except importlib.metadata.PackageNotFoundError:
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

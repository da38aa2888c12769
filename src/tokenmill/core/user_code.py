"""Import a user's Python objects by name, and send them to other processes.

Names come from the user's command line, recipe or call, never from a dataset. Pickles come only
from the parent process.
"""

from __future__ import annotations

import base64
import importlib
import io
import pickle
import traceback
import types
from typing import Any

from tokenmill.core.errors import UserError

NAMED = "python:"
PICKLED = "pickle:"


def describe_failure(error: BaseException) -> str:
    """Describe an exception from the user's code, with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def imported(source: str, noun: str, example: str) -> Any:
    """Import the object that `python:module:name` refers to.

    Messages call the object `noun`, such as "tokenizer", and show `example`.

    Raises:
        UserError: the module cannot be imported, or does not define the name.
    """
    module_name, _, name = source.removeprefix(NAMED).partition(":")
    if not source.startswith(NAMED) or not module_name or not name:
        article = f"a Python {noun}" if noun == "tokenizer" else f"a {noun}"
        hint = f"for example {example}"
        raise UserError(f"{article} must be given as python:module:name", where=source, hint=hint)
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise cannot_get(source, noun, error) from error
    return found


def cannot_get(source: str, noun: str, error: BaseException) -> UserError:
    """Return the error for an object that cannot be imported."""
    why = describe_failure(error)
    hint = "install the module, or add its folder to PYTHONPATH"
    return UserError(f"cannot import the {noun}", where=source, why=why, hint=hint)


class _Pickler(pickle.Pickler):
    """Refuses objects of the running script, which other processes cannot import."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value.__qualname__} is defined in the running script")
        return NotImplemented


def pickled(value: Any, noun: str, where: str) -> str:
    """Pickle a value for another process, as base64.

    Objects defined in the running script or notebook are sent by value, if dill is installed.

    Raises:
        UserError: the value cannot be pickled.
    """
    try:
        data = io.BytesIO()
        _Pickler(data, pickle.HIGHEST_PROTOCOL).dump(value)
        found = data.getvalue()
    except Exception as error:
        found = _by_value(value, error, noun, where)
    return PICKLED + base64.b64encode(found).decode()


def _by_value(value: Any, why: Exception, noun: str, where: str) -> bytes:
    try:
        import dill

        return bytes(dill.dumps(value, recurse=True))
    except Exception:
        raise UserError(
            f"cannot send the {noun} to worker processes",
            where=where,
            why=describe_failure(why),
            hint="give it as python:module:name, or run in this process with --workers 1",
        ) from why


def unpickled(source: str, noun: str) -> Any:
    """Return the value that was given to `pickled`.

    Raises:
        UserError: this process cannot recreate the value.
    """
    try:
        return pickle.loads(base64.b64decode(source.removeprefix(PICKLED)))  # noqa: S301 - ours
    except Exception as error:
        raise UserError(
            f"cannot recreate the {noun} in a worker process",
            why=describe_failure(error),
            hint="give it as python:module:name, or run in this process with --workers 1",
        ) from error

"""Objects of a user's own Python code: imported by name, and sent to other processes.

Names come from the user's command line, recipe or call, never from a dataset; pickles come from
our own parent process.
"""

from __future__ import annotations

import base64
import importlib
import io
import pickle
import traceback
import types
from typing import Any

from tokenmill.errors import UserError

NAMED = "python:"
PICKLED = "pickle:"


def describe_failure(error: BaseException) -> str:
    """An exception of the user's code, with the line that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def imported(source: str, noun: str, example: str) -> Any:
    """What a module holds under the name of `python:module:name`.

    `noun` is what messages call it, such as "tokenizer"; `example` names one.

    Raises:
        UserError: the module cannot be imported, or has nothing of that name.
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
    """The error for a name that leads to nothing usable."""
    why = describe_failure(error)
    hint = "install the module, or add its folder to PYTHONPATH"
    return UserError(f"cannot import the {noun}", where=source, why=why, hint=hint)


class _Pickler(pickle.Pickler):
    """Refuses what another process would look for in a script that it does not run."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, (type, types.FunctionType)) and value.__module__ == "__main__":
            raise pickle.PicklingError(f"{value.__qualname__} is defined in the running script")
        return NotImplemented


def pickled(value: Any, noun: str, where: str) -> str:
    """A value for another process of this user's: base64 of its pickle.

    What is defined in the running script or notebook is sent by value where dill is installed.

    Raises:
        UserError: it cannot be pickled.
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
    """What `pickled` was given.

    Raises:
        UserError: this process cannot make it.
    """
    try:
        return pickle.loads(base64.b64decode(source.removeprefix(PICKLED)))  # noqa: S301 - ours
    except Exception as error:
        raise UserError(
            f"cannot recreate the {noun} in a worker process",
            why=describe_failure(error),
            hint="give it as python:module:name, or run in this process with --workers 1",
        ) from error

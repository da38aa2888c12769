"""Rendering with a user's function that takes a record and returns one text, several or none."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.user_code import NAMED, describe_failure, imported, pickled, unpickled
from tokenmill.read.rendering.renderer import (
    FailedRenderingError,
    RenderedText,
    Renderer,
    Rendering,
)
from tokenmill.read.values import UnfitRecordError, char_spans

NOUN = "transform"
EXAMPLE = "python:my_package.texts:render"
Function = Callable[[dict[str, Any]], Any]


class Transform(Rendering, frozen=True, kw_only=True, tag="transform"):
    """A function from a record to its texts."""

    name: str
    """python:module:name"""
    sha256: str
    """SHA-256 of the function's source, its defaults and the values of its closure."""
    source: str = ""
    """How another process gets the function: its name, or a pickle."""
    problem: str = ""
    """Why the function cannot be sent to another process; "" if it can."""
    text: str = "text"
    """Key of the text in a returned dict."""
    no_loss: str | None = None
    """Key of the ranges without loss in a returned dict."""

    @staticmethod
    def named(name: str, text: str = "text", no_loss: str | None = None) -> Transform:
        """Return the transform for a name from the user, or from `give`.

        Raises:
            UserError: the function or its source cannot be found.
        """
        if name not in _known:
            _keep(name, imported(name, NOUN, EXAMPLE))
        return msgspec.structs.replace(_known[name][1], text=text, no_loss=no_loss)

    @property
    def has_no_loss(self) -> bool:
        """Whether a key for ranges without loss is set."""
        return self.no_loss is not None

    def renderer(self) -> Renderer:
        """Return a renderer that calls the function, or its copy in another process.

        Raises:
            UserError: this process cannot get the function, or its source has changed.
        """
        function, known = _known.get(self.name, (None, None))
        if function is None or known is None or known.sha256 != self.sha256:
            function = self._copy()
        return functools.partial(self._render, function)

    def _render(self, function: Function, record: Mapping[str, Any]) -> Sequence[RenderedText]:
        try:
            found = function(dict(record))
            if isinstance(found, types.GeneratorType):
                found = list(found)
        except (Exception, SystemExit) as error:
            raise FailedRenderingError(
                f"the {NOUN} failed on a record",
                why=f"{describe_failure(error)}, in {self.name}",
                hint="fix the function, or return None for records that it cannot use",
            ) from error
        return list(self._texts(found))

    def _texts(self, found: Any) -> Iterator[RenderedText]:
        if found is None:
            return
        for each in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(each, str):
                yield RenderedText(each, [])
            elif isinstance(each, dict):
                yield self._from_dict(each)
            else:
                raise self._unusable(f"it returned an object of type {type(each).__name__}")

    def _from_dict(self, found: dict[str, Any]) -> RenderedText:
        key, ranges = self.text, self.no_loss
        text = found.get(key)
        if not isinstance(text, str):
            raise self._unusable(f"it returned a dict without a string under {key!r}")
        if ranges is None:
            if "no_loss" in found:
                hint = 'add no_loss="no_loss"'
                raise self._unusable("it returned 'no_loss', but no_loss is not set", hint)
            return RenderedText(text)
        try:
            return RenderedText(text, char_spans(found.get(ranges)))
        except UnfitRecordError as error:
            raise self._unusable(f"{ranges!r} in the returned dict is {error.detail}") from error

    def _unusable(self, why: str, hint: str = "") -> FailedRenderingError:
        return FailedRenderingError(
            f"the {NOUN} did not return text",
            why=f"{why}, in {self.name}",
            hint=hint or "return a str, a dict with a str, a list of these, or None",
        )

    def _copy(self) -> Function:
        if self.problem:
            hint = "define it in a module, or run in this process with --workers 1"
            what = f"cannot send the {NOUN} to worker processes"
            raise UserError(what, where=self.name, why=self.problem, hint=hint)
        if not self.source.startswith(NAMED):
            function: Function = unpickled(self.source, NOUN)
            return function
        function = imported(self.source, NOUN, EXAMPLE)
        if source_digest(function, self.name) != self.sha256:
            why = "the source of its module changed after the build started"
            hint = "run the same command again"
            raise UserError(f"the {NOUN} has changed", where=self.name, why=why, hint=hint)
        return function


_known: dict[str, tuple[Function, Transform]] = {}
"""The functions that are known to this process, by name."""


def give(function: Function) -> str:
    """Register a function in this process and return its name.

    Raises:
        UserError: the object is not a function, or its source cannot be found.
    """
    name = f"{NAMED}{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    _keep(name, function)
    return name


def given_name(sha256: str) -> str | None:
    """Return the name of the known function with this source digest, if there is one."""
    return next((name for name, (_, known) in _known.items() if known.sha256 == sha256), None)


def _keep(name: str, function: Function) -> None:
    digest = source_digest(function, name)
    source, problem = name, ""
    if not _is_importable(name, function):
        try:
            source = pickled(function, NOUN, name)
        except UserError as error:
            source, problem = "", error.why
    transform = Transform(name=name, sha256=digest, source=source, problem=problem)
    _known[name] = function, transform


def _is_importable(name: str, function: Function) -> bool:
    if name.startswith(f"{NAMED}__main__:") or "<" in name:
        return False
    try:
        return imported(name, NOUN, EXAMPLE) is function
    except UserError:
        return False


def source_digest(function: Function, name: str) -> str:
    """Return the SHA-256 of a function's source, its defaults and the values of its closure.

    Functions that it calls by a global name are not included.

    Raises:
        UserError: the object is not a function, or one of these values cannot be serialized.
    """
    facts = msgspec.json.encode(_facts(function, name, set()), order="deterministic")
    return hashlib.sha256(facts).hexdigest()


def _facts(function: Any, name: str, seen: set[int]) -> list[Any]:
    if not isinstance(function, types.FunctionType):
        why = f"got an object of type {type(function).__name__}"
        raise UserError(f"a {NOUN} must be a function", where=name, why=why, hint="use def")
    seen.add(id(function))
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError, SyntaxError) as error:
        raise UserError(
            f"cannot find the source code of the {NOUN}",
            where=name,
            why=f"a resumed build compares its digest ({error})",
            hint="define it in a file or in a notebook",
        ) from error
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    around: dict[str, Any] = {}
    for variable, cell in cells:
        try:
            around[variable] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    defaults = [function.__defaults__ or (), function.__kwdefaults__ or {}]
    facts = [source, _fact(defaults, name, seen), _fact(around, name, seen)]
    return [*facts, _code(function.__code__)] if function.__name__ == "<lambda>" else facts


def _code(code: types.CodeType) -> list[Any]:
    """Return the bytecode of a lambda.

    The source of a lambda is a whole line, which can contain several lambdas or end too early.
    """
    consts = [_code(each) if isinstance(each, types.CodeType) else each for each in code.co_consts]
    plain = [sorted(map(repr, each)) if isinstance(each, frozenset) else each for each in consts]
    return [code.co_code.hex(), code.co_names, code.co_varnames, repr(plain)]


def _fact(value: Any, name: str, seen: set[int]) -> Any:
    """Convert a value to JSON; equal values give equal JSON."""
    if value is None or isinstance(value, (str, bytes, int, float)):
        return repr(value)  # JSON would not distinguish None from nan, or b"a" from "YQ=="
    if isinstance(value, Mapping):
        return [[_fact(key, name, seen), _fact(value[key], name, seen)] for key in value]
    if isinstance(value, (list, tuple)):
        return [_fact(item, name, seen) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(repr(_fact(item, name, seen)) for item in value)
    if isinstance(value, re.Pattern):
        return [value.pattern, value.flags]
    if isinstance(value, (types.ModuleType, types.BuiltinFunctionType, type)):
        return [getattr(value, "__module__", ""), value.__name__]
    if isinstance(value, types.FunctionType):
        return value.__qualname__ if id(value) in seen else _facts(value, name, seen)
    raise UserError(
        f"the {NOUN} depends on a value that a resumed build cannot compare",
        where=name,
        why=f"it uses a {type(value).__name__} from an enclosing function or as a default",
        hint="define that value at the top of a module, or inside the function",
    )

"""What a later attempt at a run must agree with.

The options and the tokenizer must be equal. The names and sizes of inputs must be equal; if only a
modification time differs, the content is compared. Only libraries that affect the output of this
build must have the same versions.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tokenmill.core.installed import installed_version
from tokenmill.encode.engine_ranking import MEMO, NATIVE
from tokenmill.encode.kinds import KINDS
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.source import AUTO, Source

MAX_SHOWN = 12


class InputIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The name, size and version of an input."""

    name: str
    bytes: int
    etag: str | UnsetType = UNSET
    """The version of a remote file."""
    mtime_ns: int | UnsetType = UNSET
    """The modification time of a local file."""


def input_identity(source: Source) -> InputIdentity:
    """Return the identity of an input, which a resumed run must agree with."""
    name, num_bytes = source.name, source.num_bytes
    if isinstance(source.version, str):
        return InputIdentity(name=name, bytes=num_bytes, etag=source.version)
    return InputIdentity(name=name, bytes=num_bytes, mtime_ns=source.version)


def versions() -> dict[str, str]:
    """Return the versions of Python and of all libraries that can affect a dataset."""
    names = ("tokenmill", "tokenizers", "fastokens", "tiktoken", "sentencepiece")
    found = {"python": platform.python_version()}
    for name in (*names, "jinja2", "msgspec", "numpy", "numba", "pyarrow", "xxhash"):
        try:
            found[name] = installed_version(name)
        except ModuleNotFoundError:
            continue
    return found


def deciding_libraries(kind: str, engine: str, sources: Iterable[Source]) -> frozenset[str]:
    """Return the libraries that affect the bytes of a build: those that read, encode and write.

    `kind` is the kind of the tokenizer.
    """
    names = {"tokenmill", "pyarrow", KINDS[kind].library}
    formats = {source.format for source in sources} - {AUTO}
    names.update(*(FORMATS[name].libraries for name in formats))
    if engine in {NATIVE, MEMO}:
        names |= {"numba", "python"}  # its kernels, and its Unicode tables
    return frozenset(names | {engine} & {"fastokens"})


def version_differences(
    old: Mapping[str, str], new: Mapping[str, str], names: Iterable[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (library, version then, version now) for those of `names` that differ.

    Libraries that an old version of this code did not record are skipped.
    """
    for name in sorted(names):
        if name in old and old[name] != new.get(name):
            yield name, old[name], new.get(name, "none")


def identity_differences(
    stored: Mapping[str, Any], now: Mapping[str, Any], change_of: Callable[[int], str]
) -> list[str]:
    """Return the differences between a stored identity and the current one, except libraries.

    `change_of` compares the content of an input, given its index, and returns what has changed, or
    "". It is called only if everything else is equal, because it reads the whole input.

    Raises:
        msgspec.ValidationError: The stored data is not an identity.
    """
    found = [
        line
        for key in now
        if key not in ("inputs", "versions")
        for line in differences(stored.get(key), now[key], key)
    ]
    inputs = msgspec.convert(stored.get("inputs", []), list[InputIdentity])
    found += _input_differences(inputs, now["inputs"])
    if found:
        return found
    pairs = enumerate(zip(inputs, now["inputs"], strict=True))
    touched = [(index, a, b) for index, (a, b) in pairs if a.mtime_ns != b.mtime_ns]
    return [
        f"{b.name}: {change}; it has the same size, and was modified {_when(b)}"
        for index, _, b in touched
        if (change := change_of(index))
    ]


def _when(known: InputIdentity) -> str:
    seconds = known.mtime_ns / 1e9 if isinstance(known.mtime_ns, int) else 0
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _input_differences(old: Sequence[InputIdentity], new: Sequence[InputIdentity]) -> Iterator[str]:
    """Yield all differences between inputs except modification times."""
    names = [[known.name for known in side] for side in (old, new)]
    if names[0] != names[1]:
        yield from (f"{name}: is no longer an input" for name in names[0] if name not in names[1])
        yield from (f"{name}: is a new input" for name in names[1] if name not in names[0])
        if sorted(names[0]) == sorted(names[1]):
            yield f"the order of the inputs: was {names[0]}, is {names[1]}"
        return
    for a, b in zip(old, new, strict=True):
        if a.bytes != b.bytes:
            yield f"{b.name}: had {a.bytes:,} bytes, has {b.bytes:,}"
        elif a.etag != b.etag:
            yield f"{b.name}: its content changed (its remote version is different)"


def differences(old: Any, new: Any, name: str) -> Iterator[str]:
    """Yield the differences between two JSON values. An absent key equals a null."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{name}[{index}]")
    elif old != new:
        yield f"{name}: was {old!r}, is {new!r}"


def shown(lines: Sequence[str]) -> str:
    """Join differences to the `why` of an error."""
    more = len(lines) - MAX_SHOWN
    rest = [f"... and {more} more"] if more > 0 else []
    return "\n       ".join([*lines[:MAX_SHOWN], *rest])

"""Globs over names of files that are not on a disk."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

_MAGIC = re.compile(r"[*?\[]")


def is_glob(path: str) -> bool:
    """Return whether a path is a glob."""
    return bool(_MAGIC.search(path))


def fixed_folder(pattern: str) -> str:
    """Return the folder that contains all matches of a glob: "a/b" for "a/b/c*/d"."""
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if is_glob(part))
    return "/".join(parts[:first])


def matches(parts: Sequence[str], pattern: Sequence[str], *, hidden: bool = True) -> bool:
    """Return whether a path matches a shell glob: * stays in a folder, ** is any number of folders.

    Without `hidden`, a name that starts with a dot only matches a pattern that starts with a dot.
    """
    if not pattern:
        return not parts
    if pattern[0] == "**":
        if matches(parts, pattern[1:], hidden=hidden):
            return True
        passes = bool(parts) and (hidden or not parts[0].startswith("."))
        return passes and matches(parts[1:], pattern, hidden=hidden)
    if not parts or not fnmatch.fnmatchcase(parts[0], pattern[0]):
        return False
    shown = hidden or pattern[0].startswith(".") or not parts[0].startswith(".")
    return shown and matches(parts[1:], pattern[1:], hidden=hidden)

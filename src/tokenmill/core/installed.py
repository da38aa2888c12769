"""What is installed, without `importlib.metadata`, which takes 60 ms to import."""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path

LONGEST_HEAD = 1 << 16
"""Bytes of a METADATA file that are searched for the version, which is one of its first fields."""
_VERSION = re.compile(r"^version:[ \t]*(\S+)[ \t\r]*$", re.IGNORECASE | re.MULTILINE)


def installed_version(name: str) -> str:
    """Return the version of an installed distribution.

    Anything other than a folder NAME-VERSION.dist-info on the path is left to `importlib`.

    Raises:
        ModuleNotFoundError: the distribution is not installed.
    """
    path = tuple(entry or "." for entry in sys.path)
    info = _metadata_folders(path).get(_normalized(name))
    if found := _version_in(info) if info else None:
        return found
    if info is None and _are_folders(path):
        raise ModuleNotFoundError(f"no package metadata of {name}", name=name)
    import importlib.metadata

    return importlib.metadata.version(name)


@functools.lru_cache(maxsize=4)
def _metadata_folders(path: tuple[str, ...]) -> dict[str, Path]:
    """Return the metadata folder or file of each distribution; the first on the path wins."""
    found: dict[str, Path] = {}
    for entry in path:
        try:
            with os.scandir(entry) as children:
                names = [child.name for child in children]
        except OSError:
            continue
        for name in names:
            if name.lower().endswith((".dist-info", ".egg-info", ".egg")):
                distribution = name.rpartition(".")[0].partition("-")[0]
                found.setdefault(_normalized(distribution), Path(entry, name))
    return found


def install_command(extra: str) -> str:
    """Return the command that installs an extra of tokenmill.

    If tokenmill was installed from a local checkout, the command names its folder.
    """
    import json
    import shlex
    from urllib.parse import unquote, urlparse

    info = _metadata_folders(tuple(entry or "." for entry in sys.path)).get("tokenmill", Path())
    try:
        origin = json.loads((info / "direct_url.json").read_bytes())
        folder = unquote(urlparse(origin["url"]).path)
        is_editable = origin["dir_info"].get("editable", False)
    except (OSError, ValueError, LookupError):
        return f"pip install 'tokenmill[{extra}]'"
    return f"pip install {'-e ' * is_editable}{shlex.quote(f'{folder}[{extra}]')}"


def _are_folders(path: tuple[str, ...]) -> bool:
    """Return whether all distributions are in folders: no archives, no third-party finders."""
    archives = any(Path(entry).is_file() for entry in path)
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    return not archives and len(finders) <= 1  # one is `importlib`'s own


@functools.lru_cache(maxsize=64)  # a build asks for a dozen versions four times
def _version_in(info: Path) -> str | None:
    """Return the version in a metadata folder, or None if it cannot be read."""
    if info.suffix != ".dist-info":
        return None
    try:
        with (info / "METADATA").open(encoding="utf-8", errors="replace") as file:
            fields = file.read(LONGEST_HEAD).partition("\n\n")[0]
    except OSError:
        return None
    found = _VERSION.search(fields)
    return found[1] if found else None


def _normalized(name: str) -> str:
    """Normalize the name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "_", name).lower()

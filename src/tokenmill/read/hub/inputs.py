"""Inputs on the Hub to files: each revision becomes a commit, once, and then nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal

from tokenmill.errors import StorageError
from tokenmill.read.hub.cache import HubCache
from tokenmill.read.hub.client import HubClient, HubFile
from tokenmill.read.hub.download import DownloadListener, download
from tokenmill.read.hub.names import HubName, is_commit, parse_hub_name
from tokenmill.read.hub.refusals import offline, require_library
from tokenmill.read.hub.selection import choose_files


@dataclass(frozen=True, slots=True)
class HubAccess:
    """How files of the Hub are to be read."""

    mode: Literal["download", "stream", "sample"] = "download"
    """Kept in the cache first; read where they are; read where they are if not in the cache."""
    cache_dir: str | None = None
    """None: the folder of the library `huggingface_hub`."""
    listener: DownloadListener = lambda progress: None


@dataclass(frozen=True, slots=True)
class HubInput:
    """A file of the Hub, and where it is kept if it is."""

    file: HubFile
    path: Path | None


def find_hub_inputs(names: Sequence[str], access: HubAccess) -> dict[str, list[HubInput]]:
    """The files of each name, downloaded if they are to be.

    Raises:
        TokenmillError: one does not exist, may not be read, or cannot be fetched.
    """
    require_library()
    cache = HubCache(access.cache_dir)
    commits: dict[tuple[str, str], str] = {}
    found = {name: _find_files(cache, parse_hub_name(name), commits) for name in names}
    inputs = iter(locate([file for files in found.values() for file in files], access))
    return {name: list(islice(inputs, len(files))) for name, files in found.items()}


def locate(files: Sequence[HubFile], access: HubAccess) -> list[HubInput]:
    """The places of files, downloaded if they are to be.

    Raises:
        TokenmillError: one may not be read, or cannot be fetched.
    """
    cache = HubCache(access.cache_dir)
    if access.mode == "download":
        download(cache, files, access.listener)
    elif access.mode == "stream":
        return [HubInput(file, None) for file in files]
    found = [HubInput(file, cache.find(file)) for file in files]
    lost = [each.file.origin for each in found if each.path is None]
    if lost and access.mode == "download":
        raise StorageError("a downloaded file has vanished from the cache", where=lost[0])
    return found


def _find_files(
    cache: HubCache, name: HubName, commits: dict[tuple[str, str], str]
) -> list[HubFile]:
    """The files of a name. What is known of a commit is never asked for again."""
    key = (name.repo, name.revision)
    if key not in commits:
        pinned = is_commit(name.revision)
        commits[key] = name.revision if pinned else _commit_of(cache, name)
    pinned_name = replace(name, revision=commits[key])
    files = cache.listing(pinned_name)
    if files is None:
        files = choose_files(HubClient(), name, commits[key])
        cache.store_listing(pinned_name, files)
    return files


def _commit_of(cache: HubCache, name: HubName) -> str:
    """The commit of a branch or tag; offline, the one that it was last known to stand for."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        if commit := cache.remembered_commit(name):
            return commit
        raise offline(str(name))
    commit = HubClient().commit_of(name)
    cache.remember_commit(name, commit)
    return commit

"""Inputs on the Hub to files: each revision becomes a commit, once, and then nothing moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tokenmill.errors import InputChangedError, StorageError
from tokenmill.read.places.hub.access import HubAccess
from tokenmill.read.places.hub.cache import HubCache
from tokenmill.read.places.hub.client import HubClient
from tokenmill.read.places.hub.download import download
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.hub.names import HubName, is_commit, parse_hub_name
from tokenmill.read.places.hub.refusals import offline, require_library
from tokenmill.read.places.hub.selection import choose_files


def find_files(names: Sequence[str], access: HubAccess) -> dict[str, list[HubFile]]:
    """The files of each name; nothing of them is fetched.

    Raises:
        TokenmillError: one does not exist, or may not be read.
    """
    require_library()
    cache = HubCache(access.cache_dir)
    commits: dict[tuple[str, str], str] = {}
    return {name: _find_files(cache, parse_hub_name(name), commits, access) for name in names}


def locate(files: Sequence[HubFile], access: HubAccess) -> list[Path | None]:
    """Where files are kept, downloaded if they are to be; None for those that are not kept.

    Raises:
        TokenmillError: one may not be read, or cannot be fetched.
    """
    require_library()
    cache = HubCache(access.cache_dir)
    if access.mode == "stream":
        return [None] * len(files)
    if access.mode == "download":
        try:
            download(cache, files, access.listener)
        except InputChangedError:
            for place in {(file.repo, file.commit) for file in files}:
                cache.forget_listings(*place)  # it may be they that are wrong
            raise
    paths = [cache.find(file) for file in files]
    if access.mode == "download" and None in paths:
        raise StorageError(
            "a downloaded file has vanished from the cache",
            where=files[paths.index(None)].origin,
            hint="keep the cache while a build runs, and run the same command again",
        )
    return paths


def _find_files(
    cache: HubCache, name: HubName, commits: dict[tuple[str, str], str], access: HubAccess
) -> list[HubFile]:
    """The files of a name. What a download knows of a commit is never asked for again."""
    from huggingface_hub import constants

    key = (name.repo, name.revision)
    if key not in commits:
        pinned = is_commit(name.revision)
        commits[key] = name.revision if pinned else _commit_of(cache, name)
    pinned_name = replace(name, revision=commits[key])
    # A download forgets a listing that proves wrong. Who only reads asks anew.
    trusted = access.mode == "download" or constants.HF_HUB_OFFLINE
    files = cache.listing(pinned_name) if trusted else None
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

"""The Hub as a place for inputs. Each revision is resolved to a commit once per build."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from tokenmill.core.errors import DamagedInputError, DataError, StorageError
from tokenmill.read.places.hub.cache import HubCache, download, has_size
from tokenmill.read.places.hub.client import (
    Check,
    RemoteFile,
    commit_of,
    offline,
    require_library,
)
from tokenmill.read.places.hub.names import (
    HubFile,
    HubName,
    is_commit,
    parse_hub_name,
)
from tokenmill.read.places.hub.selection import choose_files
from tokenmill.read.source import Access, Place, Source

SCHEME = "hf"


class Hub(Place):
    """Datasets on the Hugging Face Hub, cached in the cache of huggingface_hub."""

    def list(self, names: Sequence[str], access: Access) -> Mapping[str, Sequence[Source]]:
        """Return the files of each name at the current commit of its revision."""
        require_library()
        cache = HubCache(access.cache_dir)
        commits: dict[tuple[str, str], str] = {}
        return {
            name: [
                _source(file) for file in _find_files(cache, parse_hub_name(name), commits, access)
            ]
            for name in names
        }

    def fetch(self, sources: Sequence[Source], access: Access) -> Sequence[Source]:
        """Return the sources with their cached paths, after a download if requested."""
        require_library()
        if access.mode == "stream":
            return sources
        cache = HubCache(access.cache_dir)
        files = [_file(source) for source in sources]
        if access.mode == "download":
            try:
                download(cache, files, access.listener)
            except DamagedInputError:
                for place in {(file.repo, file.commit) for file in files}:
                    cache.forget_listings(*place)  # the listings may be wrong
                raise
        paths = [cache.find(file) for file in files]
        if access.mode == "download" and None in paths:
            raise StorageError(
                "a downloaded file was deleted from the cache",
                where=files[paths.index(None)].origin,
                hint="keep the cache while a build runs; run the same command again",
            )
        found = zip(sources, paths, strict=True)
        return [source.kept_at(path) if path else source for source, path in found]

    def open(self, source: Source, check: Check) -> BinaryIO:
        """Open a file that fetches ranges as they are read."""
        return cast(BinaryIO, RemoteFile(_file(source), check))

    def find_again(self, source: Source, path: Path) -> Source:
        """Return the file at its commit, with its cached path if that still exists."""
        found = replace(_source(_file(source)), index=source.index)
        return found.kept_at(path) if has_size(path, source.num_bytes) else found

    def commits(self, sources: Sequence[Source]) -> dict[str, str]:
        names = [parse_hub_name(source.location) for source in sources]
        return {name.repo: name.revision for name in names}

    def pinned(self, name: str, commits: Mapping[str, str]) -> str:
        parsed = parse_hub_name(name)
        return str(replace(parsed, revision=commits[parsed.repo])) if parsed.repo in commits else ""


def _source(file: HubFile) -> Source:
    """Return a remote source. Its name does not depend on the other inputs."""
    return Source(
        name=f"{file.repo}/{file.path}",
        place=SCHEME,
        location=file.origin,
        version=file.etag,
        num_bytes=file.num_bytes,
    )


def _file(source: Source) -> HubFile:
    """Return the file of a source, which may come from a record of an earlier build.

    Raises:
        DataError: the record does not name a valid file.
    """
    name = parse_hub_name(source.location)
    file = HubFile(name.repo, name.revision, name.path, source.num_bytes, str(source.version))
    if file.problem:
        what = "a record does not name a valid file on the Hub"
        raise DataError(what, where=source.location, why=file.problem)
    return file


def _find_files(
    cache: HubCache, name: HubName, commits: dict[tuple[str, str], str], access: Access
) -> list[HubFile]:
    """Return the files of a name, from the stored listing of the commit if possible."""
    from huggingface_hub import constants

    key = (name.repo, name.revision)
    if key not in commits:
        pinned = is_commit(name.revision)
        commits[key] = name.revision if pinned else _commit_of(cache, name)
    pinned_name = replace(name, revision=commits[key])
    # A download removes a listing that turns out wrong. Streaming always requests a new one.
    trusted = access.mode == "download" or constants.HF_HUB_OFFLINE
    files = cache.listing(pinned_name) if trusted else None
    if files is None:
        files = choose_files(name, commits[key])
        cache.store_listing(pinned_name, files)
    return files


def _commit_of(cache: HubCache, name: HubName) -> str:
    """Return the commit of a branch or tag; when offline, the last known one."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        if commit := cache.remembered_commit(name):
            return commit
        raise offline(str(name))
    commit = commit_of(name)
    cache.remember_commit(name, commit)
    return commit

"""Test before any work whether a location supports what a build needs.

A store may accept conditional requests but ignore the condition. Then each of 16 agents would win
the same claim and overwrite the receipts of the others. A file system may have no hard links. The
test takes four requests, or a dozen system calls. Each probe uses a unique name, so many agents can
probe at once, and removes its objects.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tokenmill.core.errors import StorageError
from tokenmill.store.files import storage_errors
from tokenmill.store.objects.folder import UNCERTAIN, WITHOUT_LINKS, FolderStore
from tokenmill.store.objects.object_store import ObjectStore

FIRST, SECOND = b"the first create\n", b"the second create\n"
NOT_IMPLEMENTED = "501 Not Implemented"


@dataclass(frozen=True, slots=True)
class Abilities:
    """Optional abilities of a location."""

    several_agents: bool
    """Whether agents on several machines can share a build here."""
    why_not: str = ""
    """Why only one agent can build here, as part of a sentence."""


def probe(store: ObjectStore) -> Abilities:
    """Test creates and links in the store's work folder.

    Raises:
        StorageError: the store is not writable, or ignores conditions, so builds are not safe.
    """
    with _probe_name(store) as name:
        _try_create(store, name)
        if isinstance(store, FolderStore):
            return _try_links(store, name)
    return Abilities(several_agents=True)


def refuse_unsafe(store: ObjectStore) -> None:
    """Probe a location that several agents share.

    Raises:
        StorageError: the store ignores conditions, or cannot let only one agent win.
    """
    abilities = probe(store)
    if not abilities.several_agents:
        raise StorageError(
            "several agents cannot work in this location",
            where=store.location,
            why=abilities.why_not,
            hint="build without --shard (a single agent), or choose another file system",
        )


@contextmanager
def _probe_name(store: ObjectStore) -> Iterator[str]:
    """Provide a unique name, and remove its object afterwards if possible."""
    name = f"work/probe-{secrets.token_hex(8)}"
    try:
        yield name
    finally:
        with suppress(StorageError):
            store.remove([name])


def _try_create(store: ObjectStore, name: str) -> None:
    """Create an object twice. Reads need no test: clients compare the ETag of each answer."""
    try:
        if store.create(name, FIRST, durable=False) != FIRST:
            raise _lies(store, "a new object does not have the content that was written")
        if store.create(name, SECOND, durable=False) != FIRST:
            raise _lies(store, "creating an object twice replaced the first one")
    except StorageError as error:
        if NOT_IMPLEMENTED not in error.why:
            raise
        raise _lies(store, "it does not implement conditional writes (501)") from error


def _try_links(store: FolderStore, name: str) -> Abilities:
    path = store.folder / name
    link = path.with_name(f".{path.name}.link")
    with storage_errors("write", path):
        try:
            os.link(path, link)
        except OSError as error:
            if error.errno in WITHOUT_LINKS:
                why = f"this file system has no hard links (link: {error.strerror})"
                return Abilities(several_agents=False, why_not=why)
            if error.errno not in UNCERTAIN:
                raise
        finally:
            link.unlink(missing_ok=True)
    return Abilities(several_agents=True)


def _lies(store: ObjectStore, why: str) -> StorageError:
    return StorageError(
        "cannot build safely in this object store",
        where=store.location,
        why=why,
        hint="use a store with conditional writes (If-None-Match), such as S3, Google Cloud "
        "Storage, Azure, R2 or MinIO; or build into a folder and copy it with `tokenmill cp`",
    )

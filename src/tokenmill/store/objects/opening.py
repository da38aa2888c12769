"""Opening the object store of a location, and testing that it supports what a build needs.

A store may accept conditional requests but ignore the condition. Then each of 16 agents would win
the same claim and overwrite the receipts of the others. A file system may have no hard links. The
test takes four requests, or a dozen system calls. Each probe uses a unique name, so many agents can
probe at once, and removes its objects.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from tokenmill.core.errors import StorageError, UserError
from tokenmill.store.cloud.names import CLOUDS, WEB, ObjectName, is_remote
from tokenmill.store.files import storage_errors
from tokenmill.store.objects.folder import UNCERTAIN, WITHOUT_LINKS, FolderStore
from tokenmill.store.objects.object_store import ObjectStore

FIRST, SECOND = b"the first create\n", b"the second create\n"
NOT_IMPLEMENTED = "501 Not Implemented"


def open_store(location: str) -> ObjectStore:
    """Return the store of a folder or of scheme://bucket/prefix, without any request.

    Raises:
        UserError: the scheme is read-only, or a package for it is not installed.
    """
    if not is_remote(location):
        return FolderStore(Path(location))
    if ObjectName.parse(location).scheme in WEB:
        why = "tokenmill can only read from web servers"
        places = ", ".join(f"{cloud}://BUCKET/PREFIX" for cloud in CLOUDS)
        hint = f"choose a folder, or one of {places}"
        raise UserError("cannot write to this location", where=location, why=why, hint=hint)
    from tokenmill.store.cloud.client import Client  # imported late: loads the client library
    from tokenmill.store.objects.bucket import BucketStore

    return BucketStore(Client(location))


def probe(store: ObjectStore) -> str:
    """Test creates and links in the store's work folder.

    Returns why only one agent can build here, as part of a sentence; "" if several can.

    Raises:
        StorageError: the store is not writable, or ignores conditions, so builds are not safe.
    """
    name = f"work/probe-{secrets.token_hex(8)}"
    try:
        if not _creates_once(store, name):  # or an agent that has finished removed the first one
            store.remove([name])
            if not _creates_once(store, name):
                raise _lies(store, "creating an object twice replaced the first one")
        return _try_links(store.folder / name) if isinstance(store, FolderStore) else ""
    finally:
        with suppress(StorageError):
            store.remove([name])


def refuse_unsafe(store: ObjectStore) -> None:
    """Probe a location that several agents share.

    Raises:
        StorageError: the store ignores conditions, or cannot let only one agent win.
    """
    if why := probe(store):
        raise StorageError(
            "several agents cannot work in this location",
            where=store.location,
            why=why,
            hint="build without --agent (a single agent), or choose another file system",
        )


def _creates_once(store: ObjectStore, name: str) -> bool:
    """Create an object twice, and return whether the first one is kept.

    Reads need no test: clients compare the ETag of each answer.
    """
    try:
        if store.create(name, FIRST, durable=False) != FIRST:
            raise _lies(store, "a new object does not have the content that was written")
        return store.create(name, SECOND, durable=False) == FIRST
    except StorageError as error:
        if NOT_IMPLEMENTED not in error.why:
            raise
        raise _lies(store, "it does not implement conditional writes (501)") from error


def _try_links(path: Path) -> str:
    """Return why a file cannot be linked, or "" if it can."""
    link = path.with_name(f".{path.name}.link")
    with storage_errors("write", path):
        try:
            os.link(path, link)
        except OSError as error:
            if error.errno in WITHOUT_LINKS:
                return f"this file system has no hard links (link: {error.strerror})"
            if error.errno not in UNCERTAIN:
                raise
        finally:
            link.unlink(missing_ok=True)
    return ""


def _lies(store: ObjectStore, why: str) -> StorageError:
    return StorageError(
        "cannot build safely in this object store",
        where=store.location,
        why=why,
        hint="use a store with conditional writes (If-None-Match), such as S3, Google Cloud "
        "Storage, Azure, R2 or MinIO; or build into a folder and copy it with `tokenmill cp`",
    )

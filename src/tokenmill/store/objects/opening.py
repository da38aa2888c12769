"""The object store of a location: a folder, or a prefix of a bucket."""

from __future__ import annotations

from pathlib import Path

from tokenmill.cloud.names import CLOUDS, WEB, ObjectName, is_remote
from tokenmill.errors import UserError
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.object_store import ObjectStore


def open_store(location: str) -> ObjectStore:
    """The store of a folder, or of scheme://bucket/prefix; nothing is requested or made yet.

    Raises:
        UserError: the scheme cannot be written to, or its extra is not installed.
    """
    if not is_remote(location):
        return FolderStore(Path(location))
    if ObjectName.parse(location).scheme in WEB:
        why = "tokenmill can only read from web servers"
        places = ", ".join(f"{cloud}://BUCKET/PREFIX" for cloud in CLOUDS)
        hint = f"choose a folder, or one of {places}"
        raise UserError("cannot write to this location", where=location, why=why, hint=hint)
    from tokenmill.cloud.client import open_client  # imports what talks to servers
    from tokenmill.store.objects.bucket import BucketStore

    return BucketStore(open_client(location))

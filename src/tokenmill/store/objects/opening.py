"""Opening the object store of a location."""

from __future__ import annotations

from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.store.cloud.names import CLOUDS, WEB, ObjectName, is_remote
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.object_store import ObjectStore


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
    from tokenmill.store.cloud.client import open_client  # imported late: loads the client library
    from tokenmill.store.objects.bucket import BucketStore

    return BucketStore(open_client(location))

"""Delete a dataset, or an unfinished build or copy, from a bucket, and never anything else.

work/deleting.json   created first, so that the next deletion can finish an interrupted one
manifest.json        deleted next, so that nobody opens a partial dataset
run.json, files      of datasets, plans, builds and copies, recognized by their names
work/deleting.json   deleted last
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import msgspec

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.records import Advance
from tokenmill.store.cloud.client import Client
from tokenmill.store.cloud.names import WEB, ObjectName, is_remote
from tokenmill.store.manifest import MANIFEST_NAME, RUN_NAME
from tokenmill.store.objects.bucket import BucketStore
from tokenmill.store.ownership import DATASET_FILES

MARKER = "work/deleting.json"
DELETION = b'{"format":"tokenmill-deletion","format_version":1}\n'
UNFINISHED = {
    MARKER: ("an unfinished deletion", b'"tokenmill-deletion"'),
    "work/job.json": ("an unfinished build", b'"tokenmill"'),
    "copy.json": ("an unfinished copy of a dataset", b'"tokenmill-copy"'),
}
"""Files that show what a location without a manifest contains, in the order they are checked.

Other programs use files with these names too, so their content is checked.
"""
FORMAT = "tokenmill"
AT_ONCE = 1000
"""Objects deleted between two progress reports."""


@dataclass(frozen=True, slots=True)
class Holding:
    """The content of a prefix of a bucket."""

    location: str
    what: str
    """A description for messages: "a dataset (id ...)", "an unfinished build"."""
    sizes: dict[str, int]
    """Size in bytes of each object to delete, by name."""
    strangers: list[str]
    """Names of objects that are kept, because they do not belong to a dataset or build."""


class _Head(msgspec.Struct):
    """The part of a manifest that identifies it; the rest may be damaged."""

    format: str = ""
    dataset_id: str = ""


def look_at(location: str) -> Holding:
    """Return what a deletion at a location would delete, without changing anything.

    Raises:
        UserError: the location is not a prefix of a bucket.
        OutputConflictError: it contains no dataset and no unfinished build or copy.
        StorageError: the store fails.
    """
    if not is_remote(location) or ObjectName.parse(location).scheme in WEB:
        raise UserError(
            "this command only deletes datasets in buckets",
            where=location,
            hint="delete the folder yourself, or replace the dataset with build --overwrite",
        )
    client = Client(location)
    found = {each.key: each.num_bytes for each in client.list()}
    manifest = client.get(MANIFEST_NAME)
    what = _dataset(manifest) if manifest is not None else None
    what = what or next(_unfinished(client, found), None)
    if what is None or (manifest is not None and _dataset(manifest) is None):
        raise OutputConflictError(
            "cannot find a dataset to delete",
            where=client.location,
            why=f"it contains {min(found)!r}" if found else "it is empty",
            hint="give the prefix that contains manifest.json, or work/job.json of a build",
        )
    sizes = {name: num_bytes for name, num_bytes in found.items() if DATASET_FILES.fullmatch(name)}
    return Holding(client.location, what, sizes, sorted(found.keys() - sizes.keys()))


def delete(holding: Holding, advance: Advance = lambda stage, done, total: None) -> None:
    """Delete what `look_at` found. Run it again to finish an interrupted deletion.

    Raises:
        StorageError: the store fails.
    """
    store = BucketStore(Client(holding.location))
    store.replace(MARKER, DELETION)
    total, done = sum(holding.sizes.values()), 0
    first = [name for name in (MANIFEST_NAME, RUN_NAME) if name in holding.sizes]
    rest = sorted(holding.sizes.keys() - {*first, MARKER})
    for name in first:
        store.remove([name])
    for start in range(0, len(rest), AT_ONCE):
        names = rest[start : start + AT_ONCE]
        store.remove(names)
        done += sum(holding.sizes[name] for name in names)
        advance("delete", done, total)
    store.remove([MARKER])


def _unfinished(client: Client, found: Collection[str]) -> Iterator[str]:
    """Yield descriptions of unfinished builds, copies and deletions among the names."""
    for name, (noun, sign) in UNFINISHED.items():
        if name in found and sign in (client.get(name) or b""):
            yield noun


def _dataset(manifest: bytes) -> str | None:
    """Describe the dataset of a manifest; None if another program wrote the manifest."""
    try:
        head = msgspec.json.decode(manifest, type=_Head)
    except msgspec.DecodeError:
        return "a dataset whose manifest is damaged" if b'"tokenmill"' in manifest[:100] else None
    return f"a dataset (id {head.dataset_id})" if head.format == FORMAT else None

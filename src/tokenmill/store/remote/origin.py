"""The origin of a dataset in a cache folder, and the download of its missing files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tokenmill.core.errors import MissingObjectError, UserError
from tokenmill.core.paths import is_safe_path
from tokenmill.store.canonical import wrong_size
from tokenmill.store.cloud.names import WEB, ObjectName
from tokenmill.store.digests import BLOCK_BYTES, num_blocks
from tokenmill.store.files import (
    leads_out,
    path_inside,
    sizes_inside,
    storage_errors,
    temporary_folder,
)
from tokenmill.store.manifest import MANIFEST_NAME, FileEntry, ShardEntry
from tokenmill.store.manifest_checks import check_file_names, find_manifest
from tokenmill.store.remote.cache_folder import claim_cache, make_holes
from tokenmill.store.remote.fetcher import FetchBlocks, Fetcher, FetchFile, ListFolder

PREFETCH_STEPS = 8
MOST_JOINED = 16
"""Most adjacent blocks in one request."""


@dataclass(frozen=True)
class Origin:
    """The object store from which a cached dataset is downloaded."""

    location: str
    """scheme://bucket/prefix, without secrets."""
    folder: Path
    cache_bytes: int | None
    """Most bytes of tokens that one loader keeps; None to keep everything it has read."""
    prefetch_steps: int
    """Number of steps for which blocks are fetched ahead."""
    fetcher: Fetcher = field(repr=False, compare=False)
    _parents: dict[str, Path] = field(default_factory=dict, repr=False, compare=False)
    """Resolved folders below this one; links to files in them are not followed."""

    def obtain(self, files: Iterable[FileEntry], prefix: str = "") -> None:
        """Download missing files and verify the digests of all files.

        Names are relative to `prefix`, in the store and in the folder.

        Raises:
            VerificationError: a file is damaged, or its name points outside the folder.
            StorageError: the store or the cache's file system fails.
        """
        wanted = {f"{prefix}{file.name}": file for file in files}
        sizes = sizes_inside(self.folder, wanted)
        missing = [name for name, size in sizes if size != wanted[name].bytes]
        self.fetcher.carry_out([self.file_request(name, wanted[name]) for name in missing])

    def obtain_tokens(self, shard: ShardEntry, digests: Sequence[int]) -> None:
        """Download all tokens of a shard; the first `digests` belong to them.

        Raises:
            UserError: the cache has a limit.
            VerificationError: the tokens are damaged.
            StorageError: the store or the cache's file system fails.
        """
        if self.cache_bytes is not None:
            raise UserError(
                "the cache is too small to read documents",
                where=self.location,
                why=f"documents are read by whole shards, and cache_bytes is {self.cache_bytes}",
                hint="open the dataset without cache_bytes, or copy it: tokenmill cp",
            )
        file = shard.files[0]
        path = self.path(file.name)
        make_holes(path, file.bytes)
        blocks = num_blocks(file.bytes)
        requests = [
            FetchBlocks(
                key=file.name,
                path=str(path),
                start=first * BLOCK_BYTES,
                num_bytes=min(MOST_JOINED * BLOCK_BYTES, file.bytes - first * BLOCK_BYTES),
                digests=list(digests[first : min(first + MOST_JOINED, blocks)]),
            )
            for first in range(0, blocks, MOST_JOINED)
        ]
        self.fetcher.carry_out(requests)

    def obtain_plan(self, name: str) -> Path | None:
        """Download only the `plan.json` of a plan; return its folder, or None if it does not exist.

        Raises:
            StorageError: the store or the cache's file system fails.
        """
        key = f"plans/{name}/plan.json"
        path = self.path(key)
        with ExitStack() as stack:
            with storage_errors("write into the cache", path):
                temporary = stack.enter_context(temporary_folder(path)) / path.name
            try:
                self.obtain_small(key, temporary)
            except MissingObjectError:
                return None
            with storage_errors("write into the cache", path):
                if not path.is_file() or path.read_bytes() != temporary.read_bytes():
                    for array in path.parent.glob("*.npy"):  # of an earlier plan with this name
                        array.unlink()
                    temporary.replace(path)
        return path.parent

    def listed(self, prefix: str = "") -> dict[str, int]:
        """Return the sizes of the objects below a folder; empty for web servers, which cannot list.

        Raises:
            UserError: the store denied access.
            StorageError: the store fails.
        """
        if ObjectName.parse(self.location).scheme in WEB:
            return {}
        (answer,) = self.fetcher.carry_out([ListFolder(prefix=prefix)])
        return answer.sizes

    def obtain_plans(self, names: Iterable[str]) -> None:
        """Download the `plan.json` of every plan among the object names."""
        for key in names:
            folder, _, leaf = key.rpartition("/")
            name = folder.removeprefix("plans/")
            if leaf == "plan.json" and is_safe_path(name) and "/" not in name:
                self.obtain_plan(name)

    def index_requests(self, files: Iterable[FileEntry]) -> list[FetchFile]:
        """Return requests for `.idx` and `.xxh3` files of shards.

        Each process verifies their digests on first use, even if they were cached before. Truncated
        or damaged files are downloaded again.
        """
        return [self.file_request(file.name, file, is_compared=True) for file in files]

    def path(self, name: str) -> Path:
        """Return the path of a file in the cache; its name is not trusted.

        Raises:
            VerificationError: the name points outside the folder.
        """
        if not is_safe_path(name):
            raise leads_out(self.location, name)
        parent, _, leaf = name.rpartition("/")
        if parent not in self._parents:
            self._parents[parent] = path_inside(self.folder, parent)
        return self._parents[parent] / leaf

    def obtain_small(self, key: str, path: Path) -> None:
        """Download an object of unknown size that contains its own digest."""
        self.fetcher.carry_out([FetchFile(key=key, path=str(path), num_bytes=None, digest="")])

    def file_request(self, name: str, file: FileEntry, *, is_compared: bool = False) -> FetchFile:
        """Return the request for a file of the dataset."""
        return FetchFile(
            key=name,
            path=str(self.path(name)),
            num_bytes=file.bytes,
            digest=file.xxh3_128,
            is_compared=is_compared,
        )


def open_origin(
    location: str,
    cache: str | Path,
    cache_bytes: int | None = None,
    prefetch_steps: int = PREFETCH_STEPS,
) -> Origin:
    """Mirror the manifest, the tokenizer and the list of plans of a dataset into a cache.

    If the store can list its objects, the size of every file is checked.

    Raises:
        UserError: the dataset does not exist, the store denied access, or the cache is not valid.
        VerificationError: the manifest, or a file that it names, is damaged.
        StorageError: the store or the cache's file system fails.
    """
    name = str(ObjectName.parse(location))
    if cache_bytes is not None and cache_bytes < BLOCK_BYTES:
        why = f"got {cache_bytes}; a block of tokens has {BLOCK_BYTES} bytes"
        raise UserError("cache_bytes is too small", why=why)
    if prefetch_steps < 0:
        raise UserError("prefetch_steps must not be negative", why=f"got {prefetch_steps}")
    root = claim_cache(cache)
    fetcher = Fetcher(name)
    with ExitStack() as stack:
        with storage_errors("write into the cache", root):
            temporary = stack.enter_context(temporary_folder(root / "opening"))
        above = Origin(name, temporary, None, 0, fetcher)
        data = None
        with suppress(MissingObjectError):
            above.obtain_small(MANIFEST_NAME, temporary / MANIFEST_NAME)
            data = (temporary / MANIFEST_NAME).read_bytes()
        manifest = find_manifest(data, name)[1]
        check_file_names(name, manifest.files)
        folder = root / manifest.digest
        with storage_errors("write into the cache", folder):
            folder.mkdir(exist_ok=True)
            (temporary / MANIFEST_NAME).replace(folder / MANIFEST_NAME)
    origin = Origin(name, folder, cache_bytes, prefetch_steps, fetcher)
    if listed := origin.listed():
        for file in manifest.files:
            if listed.get(file.name) != file.bytes:
                raise wrong_size(f"{name}/{file.name}", file.bytes, listed.get(file.name))
    origin.obtain(manifest.tokenizer.files)
    origin.obtain_plans(listed)
    return origin

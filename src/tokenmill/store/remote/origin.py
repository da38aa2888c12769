"""The origin of a dataset in a cache folder, and the download of its missing files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from tokenmill.core.errors import MissingObjectError, TokenmillError, UserError, VerificationError
from tokenmill.core.paths import is_safe_path
from tokenmill.store.cloud.names import WEB, ObjectName
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.files import (
    path_inside,
    sizes_inside,
    storage_errors,
    temporary_folder,
)
from tokenmill.store.manifest import MANIFEST_NAME, FileEntry, Manifest, ShardEntry, read_manifest
from tokenmill.store.manifest_checks import check_file_names, check_manifest, wrong_size
from tokenmill.store.remote.cache_folder import claim_cache, make_holes
from tokenmill.store.remote.fetcher import Fetcher
from tokenmill.store.remote.index_files import IndexFiles
from tokenmill.store.remote.messages import FetchBlocks, FetchFile, ListFolder

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
        requests = []
        for name, size in sizes_inside(self.folder, wanted):
            if size != wanted[name].bytes:
                requests.append(
                    FetchFile(
                        number=self.fetcher.next_number(),
                        key=name,
                        path=str(self.path(name)),
                        num_bytes=wanted[name].bytes,
                        digest=wanted[name].xxh3_128,
                    )
                )
        self._carry_out(requests)

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
        requests = []
        for start in range(0, file.bytes, MOST_JOINED * BLOCK_BYTES):
            num_bytes = min(MOST_JOINED * BLOCK_BYTES, file.bytes - start)
            first, stop = start // BLOCK_BYTES, -(-(start + num_bytes) // BLOCK_BYTES)
            requests.append(
                FetchBlocks(
                    number=self.fetcher.next_number(),
                    key=file.name,
                    path=str(path),
                    start=start,
                    num_bytes=num_bytes,
                    digests=[int(digest) for digest in digests[first:stop]],
                )
            )
        self._carry_out(requests)

    def obtain_plan(self, name: str) -> Path | None:
        """Download only the `plan.json` of a plan; return its folder, or None if it does not exist.

        Raises:
            StorageError: the store or the cache's file system fails.
        """
        path = self.path(f"plans/{name}/plan.json")
        with storage_errors("write into the cache", path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            with storage_errors("write into the cache", path):
                temporary = stack.enter_context(temporary_folder(path)) / path.name
            try:
                self._carry_out([self._small(f"plans/{name}/plan.json", temporary)])
            except MissingObjectError:
                return None
            with storage_errors("write into the cache", path):
                if not path.is_file() or path.read_bytes() != temporary.read_bytes():
                    for array in path.parent.glob(
                        "*.npy"
                    ):  # left from an earlier plan with this name
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
        number = self.fetcher.next_number()
        self.fetcher.send([ListFolder(number=number, prefix=prefix)])
        (answer,) = self.fetcher.wait([number])
        if answer.failure is not None:
            raise answer.failure.rebuild()
        return answer.sizes

    def obtain_plans(self, names: Iterable[str]) -> None:
        """Download the `plan.json` of every plan among the object names."""
        for key in names:
            folder, _, leaf = key.rpartition("/")
            name = folder.removeprefix("plans/")
            if leaf == "plan.json" and is_safe_path(name) and "/" not in name:
                self.obtain_plan(name)

    @cached_property
    def indexes(self) -> IndexFiles:
        """The token indexes and block digests of shards."""
        return IndexFiles(self.fetcher, self.path)

    def path(self, name: str) -> Path:
        """Return the path of a file in the cache; its name is not trusted.

        Raises:
            VerificationError: the name points outside the folder.
        """
        if not is_safe_path(name):
            raise VerificationError(
                f"the file name {name!r} points outside the dataset", where=self.location
            )
        parent, _, leaf = name.rpartition("/")
        if parent not in self._parents:
            self._parents[parent] = path_inside(self.folder, parent)
        return self._parents[parent] / leaf

    def _small(self, key: str, path: Path) -> FetchFile:
        number = self.fetcher.next_number()
        return FetchFile(number=number, key=key, path=str(path), num_bytes=None, digest="")

    def _carry_out(self, requests: Sequence[FetchFile | FetchBlocks]) -> None:
        self.fetcher.send(requests)
        for answer in self.fetcher.wait([request.number for request in requests]):
            if answer.failure is not None:
                raise answer.failure.rebuild()


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
        manifest = _manifest(above)
        check_manifest(temporary, manifest)
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


def _manifest(origin: Origin) -> Manifest:
    path = origin.folder / MANIFEST_NAME
    try:
        origin._carry_out([origin._small(MANIFEST_NAME, path)])
    except MissingObjectError as error:
        raise UserError(
            "cannot find a dataset",
            where=origin.location,
            why="it has no manifest.json",
            hint="check the name; only a finished build has a manifest",
        ) from error
    try:
        return read_manifest(origin.folder)
    except TokenmillError as error:
        where = f"{origin.location}/{MANIFEST_NAME}"
        raise type(error)(error.what, where=where, why=error.why, hint=error.hint) from error

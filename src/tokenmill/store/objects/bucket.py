"""A prefix of a bucket as an object store. Conditional requests create each object only once.

An answer can be lost after the store has acted; the repeated request then finds its own object.
Some stores answer 409 to a create that had no effect. So after every answer other than success,
the object is read, and its content decides.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokenmill.core.errors import StorageError
from tokenmill.store.cloud.client import Client

WAITS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Approximate seconds before each attempt to create; clients already retry failed requests."""
SMALL_BYTES = 8 << 20
"""Files up to this size are read into memory and created conditionally."""
LARGE_TRIES = 3
REQUESTS_AT_ONCE = 64
"""Number of concurrent small uploads and removals."""


class BucketStore:
    """An ObjectStore for objects below a prefix of a bucket."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.location = client.location

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:  # noqa: ARG002
        """Create an object as in `ObjectStore`; several tries if the store contradicts itself.

        Raises:
            StorageError: the store fails.
        """
        for seconds in WAITS:
            time.sleep(seconds * random.uniform(0.5, 1.5))  # noqa: S311
            try:
                if self._client.put(name, data, create=True):
                    return data
            except StorageError:
                if (held := self._client.get(name)) is not None:
                    return held
                raise
            if (held := self._client.get(name)) is not None:
                return held
        raise StorageError(
            "cannot create an object",
            where=self._where(name),
            why=f"the store said {len(WAITS)} times that it exists, but it cannot be read",
            hint="run the same command again",
        )

    def replace(self, name: str, data: bytes) -> None:
        self._client.put(name, data, create=False)

    def add_files(self, files: Mapping[str, Path]) -> None:
        """Upload small files first, only if their names are free, and then large files.

        Digests of large files are small files, so two runs that differ are detected before a large
        object is overwritten. Not every store supports conditional multipart uploads.

        Raises:
            StorageError: the store fails, or a small object already exists with other content.
        """
        sizes = {name: file.stat().st_size for name, file in files.items()}
        small = [name for name, size in sizes.items() if size <= SMALL_BYTES]
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            for _ in pool.map(lambda name: self._add_small(name, files[name]), small):
                pass
        for name in files.keys() - set(small):
            self._add_large(name, files[name], sizes[name])

    def read(self, name: str) -> bytes | None:
        return self._client.get(name)

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        return self._client.get_many(names)

    def sizes(self, folder: str) -> dict[str, int]:
        return {found.key: found.num_bytes for found in self._client.list_folder(folder)}

    def size(self, name: str) -> int | None:
        found = self._client.head(name)
        return None if found is None else found.num_bytes

    def remove(self, names: Iterable[str]) -> None:
        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as pool:
            for _ in pool.map(self._client.delete, names):
                pass

    def _add_small(self, name: str, file: Path) -> None:
        data = file.read_bytes()
        if self.create(name, data) != data:
            raise StorageError(
                "an object already exists with different content",
                where=self._where(name),
                why="objects of a build never change: either another program wrote it, or two runs "
                "of one unit gave different results",
                hint="choose another prefix, or remove this object and run the same command again",
            )

    def _add_large(self, name: str, file: Path, num_bytes: int) -> None:
        """Upload a file. A repeated request may be refused although the first one succeeded."""
        for tries_left in reversed(range(LARGE_TRIES)):
            try:
                self._client.put_file(name, file)
            except StorageError:
                if self.size(name) == num_bytes:
                    return
                if not tries_left:
                    raise
            else:
                return

    def _where(self, name: str) -> str:
        return f"{self.location}/{name}"

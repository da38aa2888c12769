"""An object store in memory, with a clock that tests move, late listings and lost answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from tokenmill.core.errors import StorageError


class MemoryStore:
    """Objects in a dict; an ObjectStore."""

    location = "memory"

    def __init__(self, clock: Callable[[], float] = lambda: 0.0, lag_seconds: float = 0.0) -> None:
        self.objects: dict[str, bytes] = {}
        self.folders: dict[str, dict[str, float]] = {}
        """By folder: names, and when they were created."""
        self.requests: Counter[str] = Counter()
        self.fails = False
        self._clock, self._lag_seconds = clock, lag_seconds

    def create(self, name: str, data: bytes, *, durable: bool = True) -> bytes:
        self._ask("create")
        if name not in self.objects:
            self._put(name, data)
        return self.objects[name]

    def replace(self, name: str, data: bytes) -> None:
        self._ask("replace")
        self._put(name, data)

    def add_files(self, files: Mapping[str, Path]) -> None:
        for name, file in files.items():
            self.replace(name, file.read_bytes())

    def read(self, name: str) -> bytes | None:
        self._ask("read")
        return self.objects.get(name)

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        return ((name, self.read(name)) for name in list(names))

    def size(self, name: str) -> int | None:
        data = self.read(name)
        return None if data is None else len(data)

    def sizes(self, folder: str) -> dict[str, int]:
        self._ask("list")
        newest = self._clock() - self._lag_seconds
        listed = self.folders.get(folder, {}).items()
        there = [name for name, created in listed if created <= newest]
        return {name: len(self.objects[name]) for name in there}

    def remove(self, names: Iterable[str]) -> None:
        self._ask("remove")
        for name in names:
            if self.objects.pop(name, None) is not None:
                del self.folders[name.rpartition("/")[0]][name]

    def _put(self, name: str, data: bytes) -> None:
        self.objects[name] = data
        self.folders.setdefault(name.rpartition("/")[0], {}).setdefault(name, self._clock())

    def _ask(self, request: str) -> None:
        self.requests[request] += 1
        if self.fails:
            raise StorageError("the store is away")

"""A client of one object store: objects by key, ranges, listings."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from tokenmill.core.errors import MissingObjectError, StorageError, TokenmillError
from tokenmill.store.cloud import failures
from tokenmill.store.cloud.failures import Doing
from tokenmill.store.cloud.loop import request_loop, wait
from tokenmill.store.cloud.names import WEB, ObjectName
from tokenmill.store.cloud.reach import require_reachable
from tokenmill.store.cloud.stores import endpoint_of, open_bucket

READS_AT_ONCE = 64
READS_AHEAD = 1024
PART_BYTES = 64 << 20
PIECE_BYTES = 8 << 20
MAX_PARTS_IN_FLIGHT = 4
LIST_PAGE = 1000
LIST_WAITS = (0.1, 0.5, 2.0, 5.0)
"""Seconds before each retry of an interrupted listing."""

_MODIFIED = "modified:"
"""Prefix of a version that is the Last-Modified time, if the server sends no ETag."""

Result = TypeVar("Result")
Request = Callable[[Any, str], Coroutine[Any, Any, Result]]
"""A request to a store for a key."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The description of an object in a store."""

    key: str
    num_bytes: int
    etag: str
    """The version, which changes with the object; "" if the store gives none."""


class Client:
    """A thread-safe client for one location; keys are relative to it.

    The client connects and looks for credentials at the first request. It can be pickled. Failed
    requests are retried for up to two minutes, and expired credentials are renewed once.

    Raises:
        UserError: the location is not valid or contains a secret, the store denied access, or the
            bucket does not exist.
        InputChangedError: an object does not have the requested ETag.
        StorageError: the store fails, or the credentials have expired.
    """

    def __init__(self, location: str) -> None:
        self._name = ObjectName.parse(location)
        self._lock = threading.Lock()
        self._store: Any = None

    def __reduce__(self) -> tuple[type[Client], tuple[str]]:
        return Client, (self.location,)

    @property
    def location(self) -> str:
        """scheme://bucket/prefix, which keys are relative to."""
        return str(self._name)

    def head(self, key: str) -> ObjectInfo | None:
        """Return the size and ETag of an object, or None if it does not exist."""

        async def head(store: Any, key: str) -> ObjectInfo:
            return _info(await store.head_async(key))

        return self._or_none(key, head)

    def get(self, key: str, etag: str = "") -> bytes | None:
        """Return the bytes of an object, or None if it does not exist."""
        return self._or_none(key, _getter(etag, {}))

    def get_range(
        self,
        key: str,
        start: int,
        stop: int,
        etag: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> bytes:
        """Return the bytes [start, stop) of an object; `check` is called meanwhile and may raise.

        Raises:
            MissingObjectError: the object does not exist.
            StorageError: the object is too short.
        """
        return wait(self.begin_range(key, start, stop, etag), check)

    def begin_range(self, key: str, start: int, stop: int, etag: str = "") -> Future[bytes]:
        """Start `get_range` without waiting for it."""
        return request_loop().begin(self._range(key, start, stop, etag))

    def pieces(
        self, key: str, num_bytes: int, num_ahead: int, check: Callable[[], None] | None = None
    ) -> Iterator[bytes]:
        """Yield an object of `num_bytes` bytes in pieces; `num_ahead` are fetched at a time."""
        ahead: deque[Future[bytes]] = deque()
        starts = iter(range(0, num_bytes, PIECE_BYTES))
        try:
            while True:
                for start in islice(starts, num_ahead - len(ahead)):
                    stop = min(start + PIECE_BYTES, num_bytes)
                    ahead.append(self.begin_range(key, start, stop))
                if not ahead:
                    return
                yield wait(ahead.popleft(), check)
        finally:
            for future in ahead:
                future.cancel()

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield (key, bytes) of many objects as `get` does, concurrently."""
        rest = iter(keys)
        with ThreadPoolExecutor(READS_AT_ONCE) as pool:
            while some := list(islice(rest, READS_AHEAD)):
                yield from zip(some, pool.map(self.get, some), strict=True)

    def put(self, key: str, data: bytes, *, create: bool = False) -> bool:
        """Store an object and return whether it was stored; with `create`, only if it is new.

        False does not mean that another process stored the object: an answer may have been lost.
        """

        async def put(store: Any, key: str) -> bool:
            from obstore.exceptions import AlreadyExistsError

            mode = "create" if create else "overwrite"
            try:
                await store.put_async(key, data, mode=mode, use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        return self._run(key, put, "write")

    def put_file(self, key: str, path: Path) -> None:
        """Upload a local file as an object, large files in parts.

        The object becomes visible only when it is complete. Parts of an interrupted upload are left
        to the lifecycle rules of the bucket.
        """

        async def put(store: Any, key: str) -> None:
            await store.put_async(
                key, path, chunk_size=PART_BYTES, max_concurrency=MAX_PARTS_IN_FLIGHT
            )

        self._run(key, put, "write")

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects below a folder, "" for all, sorted by key."""

        async def list_all(store: Any, prefix: str) -> Sequence[Any]:
            found: Sequence[Any] = await store.list(
                prefix or None, chunk_size=LIST_PAGE
            ).collect_async()
            return found

        yield from _sorted(self._listed(prefix, list_all))

    def list_folder(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects directly in a folder, sorted by key."""
        yield from _sorted(self._listed(prefix, _list_folder)["objects"])

    def names(self) -> set[str]:
        """Names of the objects and folders directly at the location."""
        found = self._listed("", _list_folder)
        names = (*(each["path"] for each in found["objects"]), *found["common_prefixes"])
        return {name for name in names if name}

    def delete(self, key: str) -> None:
        """Remove an object, if it exists."""

        async def delete(store: Any, key: str) -> None:
            await store.delete_async(key)

        try:
            self._run(key, delete, "delete")
        except MissingObjectError:
            return

    def _listed(self, prefix: str, listing: Request[Result]) -> Result:
        async def again(store: Any, prefix: str) -> Result:
            for seconds in LIST_WAITS:
                try:
                    return await listing(store, prefix)
                except Exception as error:
                    if not failures.is_broken_off(error):
                        raise
                await asyncio.sleep(seconds)
            return await listing(store, prefix)

        return self._run(prefix.strip("/"), again, "list")

    def _run(self, key: str, request: Request[Result], doing: Doing = "read") -> Result:
        return wait(request_loop().begin(self._tried(key, request, doing)))

    def _or_none(self, key: str, request: Request[Result]) -> Result | None:
        try:
            return self._run(key, request)
        except MissingObjectError:
            return None

    async def _range(self, key: str, start: int, stop: int, etag: str) -> bytes:
        if start >= stop:
            return b""
        data = await self._tried(key, _getter(etag, {"range": (start, stop)}))
        if len(data) != stop - start:
            why = f"it sent {len(data)} of {stop - start} bytes"
            where = str(self._name.below(key))
            raise StorageError("the object store gave an unexpected answer", where=where, why=why)
        return data

    async def _tried(self, key: str, request: Request[Result], doing: Doing = "read") -> Result:
        """Carry out a request; if the credentials have expired, renew them once."""
        name = self._name.below(key) if key else self._name
        try:
            await self._reached(name)
            store = self._opened(None)
            try:
                result = await request(store, key)
            except Exception as error:
                if not failures.is_expired(error):
                    raise
                result = await request(self._opened(store), key)
            failures.note(name.store, doing)
            return result
        except (TokenmillError, asyncio.CancelledError):
            raise
        except _ChangedError as error:
            raise failures.input_changed(name, str(error)) from None
        except Exception as error:
            if isinstance(error, FileNotFoundError):
                failures.note(name.store, doing)
            let_in = failures.was_let_in(name.store, doing)
            raise failures.translated(error, name, was_let_in=let_in) from None

    async def _reached(self, name: ObjectName) -> None:
        """Raise a StorageError if the user's own endpoint or web server cannot be reached.

        The clouds have many hosts, and the library picks one, so they are not checked.
        """
        address = f"{name.scheme}://{name.bucket}"
        if name.scheme not in WEB:
            address = endpoint_of(name.scheme)
        if address and not failures.has_answered(name.store):
            hint = "check the address and the network; " + failures.RESUMABLE
            await asyncio.to_thread(require_reachable, address, str(name), hint)

    def _opened(self, expired: Any) -> Any:
        """Return the store, reopened if it still is the one with expired credentials."""
        with self._lock:
            if self._store is None or self._store is expired:
                self._store = open_bucket(self._name)
            return self._store


class _ChangedError(Exception):
    """An object does not have the requested version."""


def _getter(etag: str, options: dict[str, Any]) -> Request[bytes]:
    """Return a request for the bytes of an object, which must have `etag` unless it is ""."""
    asked: Any = {**options, **_condition(etag)}

    async def get(store: Any, key: str) -> bytes:
        answer = await store.get_async(key, options=asked)
        found = _version(answer.meta)
        if etag and found != etag:  # some servers ignore conditions
            raise _ChangedError(f"its version was {etag}; now {found}")
        return bytes(await answer.bytes_async())

    return get


def _condition(etag: str) -> dict[str, Any]:
    if etag.startswith(_MODIFIED):
        return {"if_unmodified_since": datetime.fromisoformat(etag.removeprefix(_MODIFIED))}
    if not etag or etag.startswith("W/"):
        return {}  # a weak ETag never matches
    return {"if_match": etag}


async def _list_folder(store: Any, prefix: str) -> Any:
    return await store.list_with_delimiter_async(prefix or None)


def _sorted(found: Sequence[Any]) -> list[ObjectInfo]:
    """Sort objects by key, without the object that some tools create for the location itself."""
    return sorted((_info(each) for each in found if each["path"]), key=lambda each: each.key)


def _info(found: Any) -> ObjectInfo:
    return ObjectInfo(found["path"], found["size"], _version(found))


def _version(found: Any) -> str:
    if found["e_tag"]:
        return str(found["e_tag"])
    modified = found["last_modified"]
    return f"{_MODIFIED}{modified.isoformat()}" if modified.timestamp() > 0 else ""

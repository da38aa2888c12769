"""A client of one store: objects by key, ranges of them, listings."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from tokenmill.cloud import admission
from tokenmill.cloud.admission import Doing
from tokenmill.cloud.failures import (
    RESUMABLE,
    input_changed,
    is_broken_off,
    is_expired,
    translated,
)
from tokenmill.cloud.loop import request_loop, wait
from tokenmill.cloud.names import WEB, ObjectName
from tokenmill.cloud.options import endpoint_of
from tokenmill.cloud.reach import require_reachable
from tokenmill.cloud.stores import open_store
from tokenmill.errors import MissingObjectError, StorageError, TokenmillError

MAX_IN_FLIGHT = 128
PART_BYTES = 64 << 20
MAX_PARTS_IN_FLIGHT = 4
LIST_PAGE = 1000
LIST_WAITS = (0.1, 0.5, 2.0, 5.0)
"""Seconds before a listing that broke off is begun again."""

_MODIFIED = "modified:"
"""Begins the version of an object whose server gives no ETag but the time of its last change."""

Result = TypeVar("Result")
Request = Callable[[Any, str], Coroutine[Any, Any, Result]]
"""What is asked of a store for a key."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What a store says of an object."""

    key: str
    num_bytes: int
    etag: str
    """What changes when the object does; "" if the store does not say."""


class Client:
    """Speaks to the store of one location; keys are below it. Any thread may use it.

    Nothing is sent, and no credential looked for, before the first request. It can be pickled. What
    fails is tried again for up to two minutes, credentials that expire are looked for anew once.

    Raises:
        UserError: the store does not let the user in, or there is no such bucket.
        InputChangedError: an object has not the ETag that was asked for.
        StorageError: the store fails, or credentials have expired.
    """

    def __init__(self, location: str) -> None:
        self._name = ObjectName.parse(location)
        self._lock = threading.Lock()
        self._store: Any = None

    def __reduce__(self) -> tuple[type[Client], tuple[str]]:
        return Client, (self.location,)

    @property
    def location(self) -> str:
        """scheme://bucket, and what keys are below."""
        return str(self._name)

    def head(self, key: str) -> ObjectInfo | None:
        """Size and ETag of an object; None if there is none."""
        return wait(request_loop().begin(self._or_none(key, self._head)))

    def get(self, key: str, etag: str = "") -> bytes | None:
        """The bytes of an object; None if there is none."""
        return wait(request_loop().begin(self._or_none(key, _getter(etag, {}))))

    def get_range(
        self,
        key: str,
        start: int,
        stop: int,
        etag: str = "",
        check: Callable[[], None] = lambda: None,
    ) -> bytes:
        """The bytes [start, stop) of an object; `check`, which may raise, is called meanwhile.

        Raises:
            MissingObjectError: there is no such object.
            StorageError: it has not so many bytes.
        """
        return wait(self.begin_range(key, start, stop, etag), check)

    def begin_range(self, key: str, start: int, stop: int, etag: str = "") -> Future[bytes]:
        """As `get_range`, without waiting for it."""
        return request_loop().begin(self._range(key, start, stop, etag))

    def get_many(self, keys: Iterable[str]) -> Iterator[tuple[str, bytes | None]]:
        """Yield keys and bytes as `get`, many at once, in any order."""
        loop, rest = request_loop(), iter(keys)
        running: dict[Future[bytes | None], str] = {}
        arrived: list[Future[bytes | None]] = []
        news = threading.Condition()

        def arrive(future: Future[bytes | None]) -> None:
            with news:
                arrived.append(future)
                news.notify()

        def begin() -> None:
            for key in rest:
                future = loop.begin(self._or_none(key, _getter("", {})))
                running[future] = key
                future.add_done_callback(arrive)
                if len(running) >= MAX_IN_FLIGHT:
                    return

        try:
            begin()
            while running:
                with news:
                    news.wait_for(lambda: arrived)
                    done, arrived[:] = arrived[:], []
                for future in done:
                    yield running.pop(future), future.result()
                begin()
        finally:
            for future in running:
                future.cancel()

    def put(self, key: str, data: bytes, *, create: bool = False) -> bool:
        """Store an object; with `create`, only if there is none, and whether it was stored.

        The answer may have been lost, so False does not say who has stored the object.
        """
        mode: Literal["create", "overwrite"] = "create" if create else "overwrite"

        async def put(store: Any, key: str) -> bool:
            import obstore
            from obstore.exceptions import AlreadyExistsError

            try:
                await obstore.put_async(store, key, data, mode=mode, use_multipart=False)
            except AlreadyExistsError:
                return False
            return True

        return wait(request_loop().begin(self._tried(key, put, "write")))

    def put_file(self, key: str, path: Path) -> None:
        """Store a file of this machine as an object, large ones in parts.

        The object is there whole or not at all; parts of a transfer that ends before are left to
        the bucket's rules.
        """

        async def put(store: Any, key: str) -> None:
            import obstore

            await obstore.put_async(
                store, key, path, chunk_size=PART_BYTES, max_concurrency=MAX_PARTS_IN_FLIGHT
            )

        wait(request_loop().begin(self._tried(key, put, "write")))

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield all objects below a folder, "" for all, sorted by key."""

        async def list_all(store: Any, prefix: str) -> Sequence[ObjectInfo]:
            import obstore

            pages = obstore.list(store, prefix or None, chunk_size=LIST_PAGE)
            return [_info(found) async for page in _pages(pages) for found in page]

        yield from _sorted(self._listed(prefix, list_all))

    def list_folder(self, prefix: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects directly in a folder, sorted by key."""

        async def list_one(store: Any, prefix: str) -> Sequence[ObjectInfo]:
            import obstore

            found = await obstore.list_with_delimiter_async(store, prefix or None)
            return [_info(each) for each in found["objects"]]

        yield from _sorted(self._listed(prefix, list_one))

    def names(self) -> set[str]:
        """Names of the objects and folders directly at the location."""

        async def list_one(store: Any, prefix: str) -> Sequence[str]:  # noqa: ARG001
            import obstore

            found = await obstore.list_with_delimiter_async(store)
            return [*(each["path"] for each in found["objects"]), *found["common_prefixes"]]

        return {name for name in self._listed("", list_one) if name}

    def delete(self, key: str) -> None:
        """Remove an object, if there is one."""

        async def delete(store: Any, key: str) -> None:
            import obstore

            await obstore.delete_async(store, key)

        try:
            wait(request_loop().begin(self._tried(key, delete, "delete")))
        except MissingObjectError:
            return

    def _listed(self, prefix: str, listing: Request[Sequence[Result]]) -> Sequence[Result]:
        async def again(store: Any, prefix: str) -> Sequence[Result]:
            for seconds in LIST_WAITS:
                try:
                    return await listing(store, prefix)
                except Exception as error:
                    if not is_broken_off(error):
                        raise
                await asyncio.sleep(seconds)
            return await listing(store, prefix)

        return wait(request_loop().begin(self._tried(prefix.strip("/"), again, "list")))

    async def _head(self, store: Any, key: str) -> ObjectInfo:
        import obstore

        return _info(await obstore.head_async(store, key))

    async def _range(self, key: str, start: int, stop: int, etag: str) -> bytes:
        if start >= stop:
            return b""
        data = await self._tried(key, _getter(etag, {"range": (start, stop)}))
        if len(data) != stop - start:
            why = f"it sent {len(data)} of {stop - start} bytes"
            where = str(self._name.below(key))
            raise StorageError("the object store gave an unexpected answer", where=where, why=why)
        return data

    async def _or_none(self, key: str, request: Request[Result]) -> Result | None:
        try:
            return await self._tried(key, request)
        except MissingObjectError:
            return None

    async def _tried(self, key: str, request: Request[Result], doing: Doing = "read") -> Result:
        """What a request gives, with credentials that are looked for anew if they have expired."""
        name = self._name.below(key) if key else self._name
        try:
            await self._reached(name)
            store = self._opened(None)
            try:
                result = await request(store, key)
            except Exception as error:
                if not is_expired(error):
                    raise
                result = await request(self._opened(store), key)
            admission.note(name.store, doing)
            return result
        except (TokenmillError, asyncio.CancelledError):
            raise
        except _ChangedError as error:
            raise input_changed(name, str(error)) from None
        except Exception as error:
            if isinstance(error, FileNotFoundError):
                admission.note(name.store, doing)
            let_in = admission.was_let_in(name.store, doing)
            raise translated(error, name, was_let_in=let_in) from None

    async def _reached(self, name: ObjectName) -> None:
        """Raise a StorageError if the server that the user names cannot be reached at all. The
        clouds' own are many hosts, of which the library picks one.
        """
        address = f"{name.scheme}://{name.bucket}"
        if name.scheme not in WEB:
            address = endpoint_of(name.scheme)
        if address and not admission.has_answered(name.store):
            hint = "check the address and the network; " + RESUMABLE
            await asyncio.to_thread(require_reachable, address, str(name), hint)

    def _opened(self, expired: Any) -> Any:
        """The store, opened anew if it still is the one whose credentials have expired."""
        with self._lock:
            if self._store is None or self._store is expired:
                self._store = open_store(self._name)
            return self._store


class _ChangedError(Exception):
    """An object has another version than was asked for."""


def open_client(location: str) -> Client:
    """A client of the store of scheme://bucket/prefix; keys are below it. No request is sent.

    Raises:
        UserError: it is not such a name, or holds a secret.
    """
    return Client(location)


def _getter(etag: str, options: dict[str, Any]) -> Request[bytes]:
    """The request for the bytes of an object that must have an ETag, unless that is ""."""
    asked: Any = {**options, **_condition(etag)}

    async def get(store: Any, key: str) -> bytes:
        import obstore

        answer = await obstore.get_async(store, key, options=asked)
        found = _version(answer.meta)
        if etag and found != etag:  # not all servers look at conditions
            raise _ChangedError(f"its version was {etag}; now {found}")
        return bytes(await answer.bytes_async())

    return get


def _condition(etag: str) -> dict[str, Any]:
    if etag.startswith(_MODIFIED):
        return {"if_unmodified_since": datetime.fromisoformat(etag.removeprefix(_MODIFIED))}
    if not etag or etag.startswith("W/"):
        return {}  # a weak ETag never matches
    return {"if_match": etag}


def _sorted(found: Sequence[ObjectInfo]) -> list[ObjectInfo]:
    """Objects by key, without the one that some tools make of the location itself."""
    return sorted((each for each in found if each.key), key=lambda each: each.key)


def _info(found: Any) -> ObjectInfo:
    return ObjectInfo(found["path"], found["size"], _version(found))


def _version(found: Any) -> str:
    if found["e_tag"]:
        return str(found["e_tag"])
    modified = found["last_modified"]
    return f"{_MODIFIED}{modified.isoformat()}" if modified.timestamp() > 0 else ""


async def _pages(stream: Any) -> AsyncIterator[Any]:
    async for page in stream:
        yield page

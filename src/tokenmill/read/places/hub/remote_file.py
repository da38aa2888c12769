"""A seekable file on the Hub that fetches ranges as they are read, without caching them."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from functools import partial

from tokenmill.read.places.hub.background import in_background
from tokenmill.read.places.hub.client import HubClient
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.hub.patience import Check
from tokenmill.read.places.read_ahead import ReadAheadFile


class _ClosedError(Exception):
    """Raised in a read-ahead thread to stop it."""


class RemoteFile(ReadAheadFile):
    """A file on the Hub; reads send requests unless the bytes were read ahead.

    Raises:
        InputChangedError: the file has changed since it was listed (raised while reading).
        StorageError: the Hub does not answer for a long time.
    """

    def __init__(self, file: HubFile, check: Check = lambda: None) -> None:
        super().__init__(file.num_bytes, file.origin)
        self._file = file
        self._check = check
        self._closing = threading.Event()
        self._num_ahead = 0
        self._client = HubClient(self._check_open)

    def close(self) -> None:
        """Start no further requests, and end those that wait for the server."""
        self._closing.set()
        super().close()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise _ClosedError
        self._check()

    def _fetch(self, start: int, stop: int) -> bytes:
        return b"".join(self._client.chunks(self._file, start, stop))

    def _begin(self, start: int, stop: int) -> Future[bytes]:
        return in_background(partial(self._fetch, start, stop), "read-ahead")

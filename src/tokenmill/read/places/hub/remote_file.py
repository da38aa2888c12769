"""A file of the Hub as a seekable file: ranges are fetched as they are read, and not kept."""

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
    """Unwinds a thread that reads ahead."""


class RemoteFile(ReadAheadFile):
    """Reads at any place, each a request unless its bytes are there already.

    Raises:
        InputChangedError: the file is not what it was listed as (raised while reading).
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
        """Begin no further request, and end those that wait for the server."""
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

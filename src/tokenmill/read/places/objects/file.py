"""A seekable file for one version of an object: the one that was listed."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING

from tokenmill.read.compression import SNIFF_BYTES, damaged
from tokenmill.read.detection import AUTO, detect
from tokenmill.read.places.read_ahead import ReadAheadFile
from tokenmill.store.cloud.client import Client
from tokenmill.store.cloud.loop import wait

if TYPE_CHECKING:
    from tokenmill.read.sources import Source

MIN_HEAD_BYTES = 8
"""Bytes needed to recognize compressed files and tables."""


class ObjectFile(ReadAheadFile):
    """An object; reads send requests unless the bytes were read ahead.

    Raises:
        InputChangedError: the object was overwritten since it was listed (raised while reading).
        DamagedInputError: its content has another format than its name promises.
        StorageError: the store fails.
    """

    def __init__(self, client: Client, key: str, source: Source, check: Callable[[], None]) -> None:
        super().__init__(source.num_bytes, source.where)
        self._client = client
        self._key = key
        self._source = source
        self._check = check

    def _fetch(self, start: int, stop: int) -> bytes:
        etag = str(self._source.version)
        data = self._client.get_range(self._key, start, stop, etag, self._check)
        return self._expected(start, data)

    def _begin(self, start: int, stop: int) -> Future[bytes]:
        return self._client.begin_range(self._key, start, stop, str(self._source.version))

    def _result(self, start: int, coming: Future[bytes]) -> bytes:
        return self._expected(start, wait(coming, self._check))

    def _expected(self, start: int, data: bytes) -> bytes:
        """Return `data` after checking that the start of a file has the format of its suffix.

        Planning a build only looks into one file of each suffix.
        """
        source = self._source
        if start == 0 and len(data) >= MIN_HEAD_BYTES and source.format != AUTO:
            promised = source.format, source.compression
            found = detect(io.BytesIO(data[:SNIFF_BYTES]), source.where, source.name, promised[0])
            if found != promised:
                shown = [" ".join(dict.fromkeys(each)) for each in (found, promised)]
                why = f"its format is {shown[0]}, but files with its suffix are {shown[1]}"
                raise damaged(source.where, why)
        return data

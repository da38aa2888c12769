"""Rejected records as JSON Lines; records longer than 1 MiB are truncated."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tokenmill.core.records import Rejection
from tokenmill.store.digests import DigestWriter
from tokenmill.store.files import storage_errors

MAX_REJECTED_RECORD_BYTES = 1 << 20

SourceNames = Sequence[str] | Mapping[int, str]
"""Names of sources, by index."""


class RejectedWriter(DigestWriter):
    """Writes one file of rejected records."""

    def __init__(self, path: Path, source_names: SourceNames) -> None:
        super().__init__(path)
        self._where = path
        self._source_names = source_names

    def add(self, rejected: Sequence[Rejection]) -> None:
        """Append records."""
        with storage_errors("write rejected records", self._where):
            for item in rejected:
                line = {
                    "source": self._source_names[item.source],
                    "position": item.position,
                    "bytes": item.num_bytes,
                    "reason": item.reason,
                    "detail": item.detail,
                    **_readable(item.record[:MAX_REJECTED_RECORD_BYTES]),
                }
                self.write(msgspec.json.encode(line) + b"\n")


def _readable(record: bytes) -> dict[str, str]:
    try:
        return {"record": record.decode()}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(record).decode()}

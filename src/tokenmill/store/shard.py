"""Writing one shard: tokens, boundaries, documents and rejected records."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import DataError
from tokenmill.core.records import Int32Array, Int64Array, Rejection
from tokenmill.store.digests import DigestWriter, file_digest
from tokenmill.store.documents_table import DocumentRows, DocumentsWriter
from tokenmill.store.files import shared, storage_errors
from tokenmill.store.layout import MAX_DOCUMENT_TOKENS, index_pieces
from tokenmill.store.manifest import FileEntry

PARTS = ("bin", "idx", "xxh3", "parquet", "jsonl")
WRITE_BYTES = 1 << 18
"""Buffer size of the token file. The ids of a batch are larger and bypass the buffer."""


MAX_REJECTED_RECORD_BYTES = 1 << 20

SourceNames = Sequence[str] | Mapping[int, str]
"""Names of sources, by index."""


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """Properties that all shards of a build share."""

    dtype: np.dtype[np.integer]
    keep: tuple[str, ...]
    has_no_loss: bool


class ShardWriter:
    """Writes `<stem>.bin`, `.idx`, `.xxh3`, `.parquet` and `.jsonl` under temporary names."""

    def __init__(
        self,
        folder: Path,
        stem: str,
        layout: ShardLayout,
        source_names: SourceNames,
        *,
        tokens: Path | None = None,
    ) -> None:
        """Create the files.

        If `tokens` already holds what will be appended, the `.bin` shares its bytes where the file
        system allows it; `shares_tokens` tells.

        Raises:
            StorageError: the file system refuses a file.
        """
        self._layout = layout
        self._names = source_names
        self._paths = {part: folder / f"{stem}.{part}" for part in PARTS}
        with storage_errors("write a shard", self._paths["bin"]):
            self.shares_tokens = tokens is not None and shared(tokens, self._paths["bin"])
            written = Path(os.devnull) if self.shares_tokens else self._paths["bin"]
            self._tokens = DigestWriter(written, WRITE_BYTES)
            self._rejected = RejectedWriter(self._paths["jsonl"], source_names)
            self._documents = DocumentsWriter(
                self._paths["parquet"],
                source_names,
                layout.keep,
                has_no_loss=layout.has_no_loss,
            )
        self._lengths: list[Int32Array] = []
        self.num_documents = 0

    def append(self, rows: DocumentRows, ids: npt.NDArray[np.integer], lengths: Int64Array) -> None:
        """Add documents, given their concatenated ids and the number of tokens of each."""
        if len(lengths) and int(lengths.max()) > MAX_DOCUMENT_TOKENS:
            longest = int(lengths.argmax())
            name = self._names[rows.sources[longest]]
            raise DataError(
                f"a document has more than {MAX_DOCUMENT_TOKENS} tokens",
                where=f"{name}, position {rows.positions[longest]}",
                why="the index stores lengths in 32 bits",
                hint="split the document",
            )
        with storage_errors("write a shard", self._paths["bin"]):
            self._tokens.write(ids.data)
            self._lengths.append(lengths.astype(np.int32))
            self._documents.append(rows)
        self.num_documents += len(lengths)

    def reject(self, rejected: Sequence[Rejection]) -> None:
        """Add rejected records."""
        self._rejected.add(rejected)

    def close(self) -> list[FileEntry]:
        """Finish all files and return them; empty files are removed."""
        with storage_errors("finish a shard", self._paths["bin"]):
            self._tokens.close()
            self._rejected.close()
            self._documents.close()
            lengths = np.concatenate([np.empty(0, np.int32), *self._lengths])
            index = DigestWriter(self._paths["idx"])
            for piece in index_pieces(lengths, self._layout.dtype):
                index.write(piece)
            index.close()
            blocks = DigestWriter(self._paths["xxh3"])
            blocks.write(self._tokens.block_digests + index.block_digests)
            blocks.close()
            entries = []
            digests = {
                "bin": self._tokens.digest,
                "idx": index.digest,
                "xxh3": blocks.digest,
                "jsonl": self._rejected.digest,
            }
            for part, path in self._paths.items():
                size = path.stat().st_size
                if size == 0 or (part != "jsonl" and not self.num_documents):
                    path.unlink()
                    continue
                digest = digests.get(part) or file_digest(path)
                entries.append(FileEntry(name=part, bytes=size, xxh3_128=digest))
        return entries

    def discard(self) -> None:
        """Remove all files of the shard."""
        self._documents.discard()
        for writer in (self._tokens, self._rejected):
            with contextlib.suppress(OSError):
                writer.close()
        for path in self._paths.values():
            with contextlib.suppress(OSError):  # the next attempt clears its folder
                path.unlink(missing_ok=True)


class RejectedWriter(DigestWriter):
    """Writes one file of rejected records as JSON Lines; long ones are truncated."""

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

"""One token file becomes one shard: its ids are checked, digested, and shared or written."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xxhash

from tokenmill.core.errors import DataError
from tokenmill.core.records import BoolArray, Int64Array
from tokenmill.read.tokens.pieces import Piece, TokenFile
from tokenmill.run.adopt.decisions import SPECIAL, UNKNOWN, Decisions
from tokenmill.run.executor import Receipt
from tokenmill.store.documents_table import DocumentRows
from tokenmill.store.manifest import Counts, ExtentEntry, Found
from tokenmill.store.shard import ShardLayout, ShardWriter

SAMPLE_TOKENS = 200


class _NotAsItLies(Exception):
    """The shard of a file needs other bytes than the file has."""


class _Shard:
    """Writes the shard of a file, or counts what does not fit."""

    def __init__(self, file: TokenFile, decided: Decisions, writer: ShardWriter) -> None:
        self._file, self._decided, self._writer = file, decided, writer
        self._eos_id, self._append_eos = decided.boundary.eos_id, decided.options.append_eos
        self.found = Found(left_out=list(file.left_out), shared=int(writer.shares_tokens))
        self._carried = 0
        """Ids so far of a document that has not ended."""
        self._last = -1
        """The last id of the piece before."""
        self._outside, self._first_outside = 0, ""
        self._lacking, self._first_lacking = 0, ""
        self.read, self.rows = xxhash.xxh3_128(), xxhash.xxh3_128()

    def add(self, piece: Piece) -> None:
        """Check a piece, and write it unless something before did not fit."""
        lengths = np.diff(piece.ends, prepend=-self._carried)
        filled = lengths > 0
        self.found.empty += int((~filled).sum())
        if not len(piece.ids):
            return
        ids, lengths = np.ascontiguousarray(piece.ids), lengths[filled]
        ends, positions = piece.ends[filled], piece.positions[filled]
        self.read.update(ids.data)
        self.rows.update(np.stack([lengths, positions], axis=1).data)
        lacking = ids[ends - 1] != self._eos_id
        self._check(Piece(ids, ends, positions), lengths, lacking)
        self._carried = len(ids) - int(ends[-1]) if len(ends) else self._carried + len(ids)
        self._last = int(ids[-1])
        if self._outside or (self._lacking and not self._append_eos):
            return
        dtype = self._decided.dtype  # all ids are in its range
        ids = ids.view(dtype) if ids.itemsize == dtype.itemsize else ids.astype(dtype)
        if lacking.any():
            if self._writer.shares_tokens:
                raise _NotAsItLies
            ids = np.insert(ids, ends[lacking], self._eos_id)
            lengths = lengths + lacking
            self.found.appended += int(lacking.sum())
            self.found.tokens += int(lacking.sum())
        count = len(lengths)
        rows = DocumentRows(
            sources=np.full(count, self._file.source.index, np.int32),
            positions=positions,
            ids=[None] * count,
            in_validation=np.zeros(count, bool),
            columns={},
            no_loss=[],
        )
        self._writer.append(rows, ids, lengths)

    def _check(self, piece: Piece, lengths: Int64Array, lacking: BoolArray) -> None:
        """Count what a piece holds."""
        (ids, ends, positions), found, prefix = piece, self.found, self._decided.boundary.prefix
        where, largest_id = self._file.source.where, self._decided.reference.largest_id
        if int(ids.max()) > largest_id or int(ids.min()) < 0:
            outside = (ids > largest_id) | (ids < 0)
            self._outside += int(outside.sum())
            number = found.tokens + int(outside.argmax())
            self._first_outside = self._first_outside or f"{where}, token {number:,}"
        if lacking.any():
            self._lacking += int(lacking.sum())
            position = positions[lacking.argmax()]
            self._first_lacking = self._first_lacking or f"{where}, position {position:,}"
        if not found.documents:
            first = ids[: ends[0]] if len(ends) else ids
            found.sample += first[: SAMPLE_TOKENS - len(found.sample)].tolist()
        found.tokens += len(ids)
        found.documents += len(ends)
        if self._outside:
            return
        kinds, ended = self._decided.kinds[ids], ~lacking
        found.special += int((kinds == SPECIAL).sum()) - int(ended.sum())
        found.unknown += int((kinds == UNKNOWN).sum())
        found.bare += int((ended & (lengths == 1)).sum())
        before = np.where(ends > 1, ids[ends - 2], self._last)
        found.repeated += int((ended & (lengths > 1) & (before == self._eos_id)).sum())
        found.without_prefix += int((lengths <= len(prefix)).sum())
        starts = np.append(-self._carried, ends)
        for place, token in enumerate(prefix):
            places = starts + place
            places = places[(places >= 0) & (places < len(ids))]
            found.without_prefix += int((ids[places] != token).sum())

    def require_fit(self) -> None:
        """Raise a DataError if an id is not in the vocabulary, or a document has no EOS."""
        if self._outside:
            largest_id = self._decided.reference.largest_id
            raise DataError(
                "token ids are outside the vocabulary",
                where=self._first_outside,
                why=f"{self._outside:,} ids of the file; the largest of the tokenizer is "
                f"{largest_id:,}",
                hint="give the tokenizer that encoded the file; for files without a header, "
                "also look at --dtype",
            )
        if self._lacking and not self._append_eos:
            raise DataError(
                f"{self._lacking:,} of {self.found.documents:,} documents do not end with the EOS",
                where=self._first_lacking,
                why=f"the EOS has the id {self._eos_id}",
                hint="append it with --append-eos, or name another one with --eos",
            )


def write_shard(
    file: TokenFile, decided: Decisions, folder: Path, key: str, advance: Callable[[float], None]
) -> Receipt:
    """Write the shard of a file as `KEY.PART`; `advance` is called with the share that is done.

    Raises:
        DataError: the file is damaged, or something in it does not fit the tokenizer.
        InputChangedError: the file changed meanwhile.
        StorageError: the file system fails.
    """
    with contextlib.suppress(_NotAsItLies):
        shared = file.source.path if decided.can_share(file) else None
        return _write_shard(file, decided, folder, key, advance, shared)
    return _write_shard(file, decided, folder, key, advance, None)


def _write_shard(
    file: TokenFile,
    decided: Decisions,
    folder: Path,
    key: str,
    advance: Callable[[float], None],
    shared: Path | None,
) -> Receipt:
    """Write the shard of a file, with the bytes of the file `shared` unless that is None."""
    started, source = time.monotonic(), file.source
    layout = ShardLayout(decided.dtype, (), has_no_loss=False)
    writer = ShardWriter(folder, key, layout, {source.index: source.name}, tokens=shared)
    try:
        shard = _Shard(file, decided, writer)
        for piece in file.pieces():
            shard.add(piece)
            advance(min(shard.found.tokens / max(file.num_tokens, 1), 1.0))
        shard.require_fit()
        source.require_unchanged()
        files = writer.close()
    except BaseException:
        writer.discard()
        raise
    found, index = shard.found, str(source.index)
    counts = Counts(
        records=found.documents + found.empty,
        documents=found.documents,
        tokens=found.tokens,
        empty=found.empty,
        unknown_tokens=found.unknown,
    )
    return Receipt(
        key=key,
        extents=[ExtentEntry(source=source.index, start=0, stop=None)],
        files=files,
        documents=found.documents,
        tokens=found.tokens,
        counts={index: counts},
        read_digests={index: shard.read.hexdigest()},
        row_digests={index: shard.rows.hexdigest()},
        audited=0,
        excluded=[],
        seconds=round(time.monotonic() - started, 3),
        input_bytes=source.num_bytes,
        found=found,
    )

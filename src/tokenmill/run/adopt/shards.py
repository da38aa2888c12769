"""One token file becomes one shard: its ids are checked, digested, and shared or written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import xxhash

from tokenmill.core.errors import DataError
from tokenmill.core.records import BoolArray, Int64Array, UInt8Array
from tokenmill.encode.boundary_policy import BoundaryTokens
from tokenmill.encode.engine import Reference
from tokenmill.read.tokens.pieces import Ids, Piece, TokenFile
from tokenmill.store.documents_table import DocumentRows
from tokenmill.store.manifest import Count, FileEntry
from tokenmill.store.shard import ShardLayout, ShardWriter

SAMPLE_TOKENS = 200
SPECIAL, UNKNOWN = 1, 2


class Found(msgspec.Struct, kw_only=True):
    """What a file holds."""

    documents: Count = 0
    tokens: Count = 0
    empty: Count = 0
    """Documents without ids, which are left out."""
    appended: Count = 0
    """Documents that got an EOS."""
    bare: Count = 0
    """Documents of an EOS alone."""
    repeated: Count = 0
    """Documents that end with several EOS, as padded rows do."""
    special: Count = 0
    """Special tokens inside documents."""
    unknown: Count = 0
    with_prefix: list[Count] = []
    """For each id of the tokenizer's prefix: documents that have it in its place."""
    shortest: Count = 0
    """The ids of the shortest document."""
    left_out: list[str] = []
    """What lies beside the ids and is not in the dataset."""
    sample: list[int] = []
    """The first ids of the first document."""
    shared: Count = 0
    """Files whose bytes their shard shares, as a clone or a link."""


class Rules:
    """What ids must be, for one tokenizer."""

    def __init__(
        self, reference: Reference, boundary: BoundaryTokens, dtype: np.dtype[np.integer]
    ) -> None:
        self.largest_id, self.dtype, self.prefix = reference.largest_id, dtype, boundary.prefix
        self.eos_id = boundary.eos_id
        self.kinds: UInt8Array = np.zeros(reference.largest_id + 1, np.uint8)
        """Shape (largest_id + 1,): SPECIAL, UNKNOWN or 0."""
        if reference.unk_id is not None:
            self.kinds[reference.unk_id] = UNKNOWN
        self.kinds[[*reference.special_tokens.values(), self.eos_id, *self.prefix]] = SPECIAL

    def fits(self, file: TokenFile) -> bool:
        """Whether a shard can have the bytes of a file."""
        found = file.dtype
        same = found is not None and found.kind in "iu" and found.itemsize == self.dtype.itemsize
        return file.is_plain and same


class _NotAsItLies(Exception):
    """The shard of a file needs other bytes than the file has."""


class _Shard:
    """Writes the shard of a file, or counts what does not fit."""

    def __init__(
        self, file: TokenFile, rules: Rules, append_eos: bool, writer: ShardWriter
    ) -> None:
        self._file, self._rules, self._writer = file, rules, writer
        self._append_eos = append_eos
        self.found = Found(with_prefix=[0] * len(rules.prefix))
        self._carried = 0
        """Ids so far of a document that has not ended."""
        self._last: int | None = None
        """The last id of the piece before."""
        self._outside, self._first_outside = 0, ""
        self._lacking, self._first_lacking = 0, ""
        self.read, self.rows = xxhash.xxh3_128(), xxhash.xxh3_128()

    def add(self, piece: Piece) -> None:
        """Check a piece, and write it unless something before did not fit."""
        ids, ends = piece.ids, piece.ends
        self.read.update(np.ascontiguousarray(ids).data)
        lengths = np.diff(ends, prepend=-self._carried)
        self.rows.update(lengths.data)
        self.rows.update(piece.positions.data)
        lacking = ids[ends - 1] != self._rules.eos_id
        self._check(piece, lengths, lacking)
        self._carried = self._carried + len(ids) if not len(ends) else len(ids) - int(ends[-1])
        self._last = int(ids[-1])
        if self._outside or (self._lacking and not self._append_eos):
            return
        if lacking.any():
            if self._writer.shares_tokens:
                raise _NotAsItLies
            ids = np.insert(ids, ends[lacking], self._rules.eos_id)
            lengths = lengths + lacking
            self.found.appended += int(lacking.sum())
            self.found.tokens += int(lacking.sum())
        self._write(ids, lengths, piece.positions)

    def end(self) -> None:
        """Complete the counts.

        Raises:
            DataError: an id is not in the vocabulary, or a document does not end with an EOS.
        """
        self.found.empty = self._file.num_empty
        self.found.left_out = list(self._file.left_out)
        self.found.shared = int(self._writer.shares_tokens)
        if self._outside:
            raise DataError(
                "token ids are outside the vocabulary",
                where=self._first_outside,
                why=f"{self._outside:,} ids of the file; the largest of the tokenizer is "
                f"{self._rules.largest_id:,}",
                hint="give the tokenizer that encoded the file; for files without a header, "
                "also look at --dtype",
            )
        if self._lacking and not self._append_eos:
            total = self.found.documents
            raise DataError(
                f"{self._lacking:,} of {total:,} documents do not end with the EOS",
                where=self._first_lacking,
                why=f"the EOS has the id {self._rules.eos_id}",
                hint="append it with --append-eos, or name another one with --eos",
            )

    def _check(self, piece: Piece, lengths: Int64Array, lacking: BoolArray) -> None:
        """Count what a piece holds."""
        ids, ends, found, rules = piece.ids, piece.ends, self.found, self._rules
        where = self._file.source.where
        if int(ids.max()) > rules.largest_id or int(ids.min()) < 0:
            outside = (ids > rules.largest_id) | (ids < 0)
            self._outside += int(outside.sum())
            number = found.tokens + int(outside.argmax())
            self._first_outside = self._first_outside or f"{where}, token {number:,}"
        if lacking.any():
            self._lacking += int(lacking.sum())
            position = piece.positions[lacking.argmax()]
            self._first_lacking = self._first_lacking or f"{where}, position {position:,}"
        found.tokens += len(ids)
        found.documents += len(ends)
        if len(found.sample) < SAMPLE_TOKENS and found.documents - len(ends) == 0:
            stop = int(ends[0]) if len(ends) else len(ids)
            found.sample += ids[:stop][: SAMPLE_TOKENS - len(found.sample)].tolist()
        if self._outside:
            return
        self._count_special(ids, lacking)
        starts = np.append(-self._carried, ends)
        for place, token in enumerate(rules.prefix):
            places = starts + place
            places = places[(places >= 0) & (places < len(ids))]
            found.with_prefix[place] += int((ids[places] == token).sum())
        if len(ends):
            shortest = int(lengths.min())
            found.shortest = min(found.shortest or shortest, shortest)
            found.bare += int(((lengths == 1) & ~lacking).sum())
            before = np.where(ends > 1, ids[ends - 2], -1 if self._last is None else self._last)
            ended_twice = (before == rules.eos_id) & ~lacking & (lengths > 1)
            found.repeated += int(ended_twice.sum())

    def _count_special(self, ids: Ids, lacking: BoolArray) -> None:
        """Count the special tokens of a piece, except the EOS at ends, and unknown ones."""
        kinds = self._rules.kinds[ids]
        self.found.special += int((kinds == SPECIAL).sum()) - int((~lacking).sum())
        self.found.unknown += int((kinds == UNKNOWN).sum())

    def _write(self, ids: Ids, lengths: Int64Array, positions: Int64Array) -> None:
        count = len(lengths)
        rows = DocumentRows(
            sources=np.full(count, self._file.source.index, np.int32),
            positions=positions,
            ids=[None] * count,
            in_validation=np.zeros(count, bool),
            columns={},
            no_loss=[],
        )
        self._writer.append(rows, _as(ids, self._rules.dtype), lengths)


def _as(ids: Ids, dtype: np.dtype[np.integer]) -> Ids:
    """Return ids that fit a dtype in it, contiguous; of the same size, they are not copied."""
    ids = np.ascontiguousarray(ids)
    return ids.view(dtype) if ids.dtype.itemsize == dtype.itemsize else ids.astype(dtype)


class Written(msgspec.Struct, kw_only=True):
    """A shard under temporary names, or nothing if the file has no documents."""

    found: Found
    files: list[FileEntry]
    read_digest: str
    row_digest: str


def write_shard(
    file: TokenFile,
    rules: Rules,
    folder: Path,
    stem: str,
    *,
    append_eos: bool,
    advance: Callable[[int], None],
) -> Written:
    """Write the shard of a file; `advance` is called with the ids done.

    Raises:
        DataError: the file is damaged, or something in it does not fit the rules.
        InputChangedError: the file changed meanwhile.
        StorageError: the file system fails.
    """
    shared = file.source.path if rules.fits(file) else None
    layout = ShardLayout(rules.dtype, (), has_no_loss=False)
    names = {file.source.index: file.source.name}
    while True:
        writer = ShardWriter(folder, stem, layout, names, tokens=shared)
        try:
            shard = _Shard(file, rules, append_eos, writer)
            for piece in file.pieces():
                shard.add(piece)
                advance(shard.found.tokens)
            shard.end()
            file.source.require_unchanged()
            return Written(
                found=shard.found,
                files=writer.close(),
                read_digest=shard.read.hexdigest(),
                row_digest=shard.rows.hexdigest(),
            )
        except _NotAsItLies:
            writer.discard()
            shared = None
        except BaseException:
            writer.discard()
            raise

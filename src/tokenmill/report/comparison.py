"""The sources, read and encoded again by the reference, against what the dataset holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from tokenmill.encode.engine import Reference
from tokenmill.errors import UserError, VerificationError
from tokenmill.read.documents import Reader
from tokenmill.read.hub.client import recorded_file
from tokenmill.read.hub.inputs import HubAccess, HubInput, locate
from tokenmill.read.sources import Source, hub_source
from tokenmill.read.units import Extent
from tokenmill.records import Advance, DocumentBatch
from tokenmill.report.contents import iter_documents, stored_run
from tokenmill.run.recipe import ReadOptions
from tokenmill.run.sampling import chosen, document_hashes
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import Run

BATCH_BYTES = 1 << 20


def compare_with_sources(
    dataset: Dataset, reference: Reference, sample: float, advance: Advance
) -> int:
    """Every document of the sources must be in the dataset, in order, with the reference's ids.

    `sample` is the share of documents that is encoded again; places are compared for all.
    Returns how many were encoded.

    Raises:
        VerificationError: a document differs, is missing, or should not be there.
        UserError: a source is no longer where it was, or has another size.
    """
    comparison = _Comparison(dataset, reference, sample)
    sources = find_again(dataset, advance)
    read = msgspec.convert(dataset.manifest.policies["read"], ReadOptions)
    reader = Reader(sources, read.fields, BATCH_BYTES)
    total = sum(source.num_bytes for source in sources)
    done, ended = 0, False
    for source, entry in zip(sources, dataset.manifest.sources, strict=True):
        if ended:
            break
        if not entry.quarantined:
            for batch in reader.read(Extent(source.index)):
                ended = not comparison.compare(source, batch)
                if ended:
                    break
                advance("sources", done, total)
        done += source.num_bytes
        advance("sources", done, total)
    comparison.require_end()
    return comparison.num_encoded


def find_again(dataset: Dataset, advance: Advance) -> list[Source]:
    """The sources of a dataset, where the build read them; files of the Hub at their commits."""
    sources = []
    run = stored_run(dataset)
    on_hub = iter(_hub_inputs(dataset, run, advance))
    for index, (entry, name) in enumerate(zip(dataset.manifest.sources, run.inputs, strict=True)):
        if entry.origin is not msgspec.UNSET:
            source = hub_source(index, next(on_hub), entry.format)
            sources.append(replace(source, format=entry.format, compression=entry.compression))
            continue
        path = Path(name)
        status = path.stat() if path.is_file() else None
        if status is None or status.st_size != entry.bytes:
            raise UserError(
                "a source is no longer what the dataset was built from",
                where=name,
                why="it is gone"
                if status is None
                else f"{status.st_size} bytes, not {entry.bytes}",
                hint="bring the file back, or verify without --against-sources",
            )
        sources.append(
            Source(
                index,
                entry.name,
                path,
                entry.bytes,
                status.st_mtime_ns,
                entry.format,
                entry.compression,
            )
        )
    return sources


class _InputIdentity(msgspec.Struct):
    etag: str = ""


class _Identity(msgspec.Struct):
    inputs: list[_InputIdentity]


def _hub_inputs(dataset: Dataset, run: Run, advance: Advance) -> list[HubInput]:
    """The sources that came from the Hub, downloaded again where they are not where they were.

    They go to the library's own cache: a dataset that was made elsewhere names no folder to write.
    """
    try:
        identity = msgspec.convert(run.identity, _Identity)
    except msgspec.ValidationError as error:
        where = str(dataset.folder)
        raise VerificationError("run.json names no inputs", where=where, why=str(error)) from error
    found, lost = [], []
    for entry, name, known in zip(
        dataset.manifest.sources, run.inputs, identity.inputs, strict=True
    ):
        if entry.origin is msgspec.UNSET:
            continue
        file, path = recorded_file(entry.origin, entry.bytes, known.etag), Path(name)
        kept = path.is_file() and path.stat().st_size == entry.bytes
        found.append(HubInput(file, path if kept else None))
        lost += [] if kept else [file]
    streamed = dataset.manifest.policies["read"].get("streaming", False)
    access = HubAccess(
        "stream" if streamed else "download",
        listener=lambda progress: advance("download", progress.done_bytes, progress.total_bytes),
    )
    again = iter(locate(lost, access) if lost else [])
    return [each if each.path else next(again) for each in found]


class _Comparison:
    """Walks through the dataset beside its sources."""

    def __init__(self, dataset: Dataset, reference: Reference, sample: float) -> None:
        self._documents = iter_documents(dataset)
        self._next = next(self._documents, None)
        read = dataset.manifest.policies["read"]
        self._limited = read["max_documents"] is not None or read["max_tokens"] is not None
        self._prefix = dataset.manifest.tokenizer.prefix_ids
        self._eos_id = dataset.manifest.tokenizer.eos_id
        self._reference = reference
        self._sample = sample
        self.num_encoded = 0

    def compare(self, source: Source, batch: DocumentBatch) -> bool:
        """Compare one batch; false where a dataset that stopped at a limit has ended."""
        picked = chosen(document_hashes(source.name, batch), self._sample) | (self._sample >= 1)
        texts: list[str] = []
        expected: list[tuple[int, np.ndarray | None]] = []
        for index, position in enumerate(batch.positions.tolist()):
            if self._next is None and self._limited:
                break
            stored = None
            if self._next is not None and self._next[:2] == (source.name, position):
                stored = self._next[2]
                self._next = next(self._documents, None)
            if stored is None or picked[index]:
                texts.append(batch.texts[index])
                expected.append((position, stored))
        self._require_equal(source, texts, expected)
        return self._next is not None or not self._limited

    def _require_equal(
        self, source: Source, texts: Sequence[str], expected: list[tuple[int, np.ndarray | None]]
    ) -> None:
        tokens = self._reference.encode(texts)
        for index, (position, stored) in enumerate(expected):
            ids = tokens.ids[tokens.offsets[index] : tokens.offsets[index + 1]]
            where = f"{source.name}, position {position}"
            if stored is None:
                if len(ids):
                    raise VerificationError("a document is missing", where=where)
                continue  # an empty document, which is counted and not written
            whole = np.concatenate([self._prefix, ids, [self._eos_id]])
            if not np.array_equal(whole, stored):
                raise VerificationError(
                    "a document differs from its source",
                    where=where,
                    why=f"{len(stored)} ids are stored; the reference gives {len(whole)}",
                )
            self.num_encoded += 1

    def require_end(self) -> None:
        """Raise where the dataset holds more than its sources."""
        if self._next is not None:
            where = f"{self._next[0]}, position {self._next[1]}"
            raise VerificationError("a document is in no source", where=where)

"""Compare a dataset with its sources, encoded again by the reference tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from tokenmill.core.errors import UserError, VerificationError
from tokenmill.core.records import Advance, DocumentBatch
from tokenmill.encode.engine import Reference
from tokenmill.read.documents import Reader
from tokenmill.read.formats.format import Extent
from tokenmill.read.rendering.transform import given_name
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import find_source, place_sources
from tokenmill.reports.contents import Part, iter_documents, run_if_kept, stored_run
from tokenmill.run.chat import conversations_of
from tokenmill.run.recipe.options import ReadOptions
from tokenmill.run.units.attempt import chosen, document_hashes
from tokenmill.store.copying.view_copy import VIEW
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import MANIFEST_NAME, Run

BATCH_BYTES = 1 << 20


def compare_with_sources(part: Part, reference: Reference, sample: float, advance: Advance) -> int:
    """Check that the dataset holds every document of its sources, in order, with the right ids.

    `sample` is the share of documents that is encoded again; places are compared for all those of
    the sources of `part`. Returns how many were encoded.

    Raises:
        VerificationError: a document differs, is missing, or should not be there.
        UserError: a source is no longer where it was, or has another size.
    """
    dataset = part.dataset
    read = read_options(dataset)
    documents = part.documents_of_sources
    limited = read.max_documents is not None or read.max_tokens is not None
    limited = limited and documents.stop == dataset.num_documents
    comparison = _Comparison(dataset, documents, reference, sample, limited)
    sources = find_again(dataset, advance, part.sources)
    rendering = conversations_of(dataset.policies, reference.special_tokens)
    fields = replace(read.fields, rendering=rendering) if rendering else read.fields
    reader = Reader(sources, fields, BATCH_BYTES)
    total = sum(source.num_bytes for source in sources)
    done, ended = 0, False
    entries = dataset.manifest.sources[part.sources]
    for number, (source, entry) in enumerate(zip(sources, entries, strict=True)):
        if ended:
            break
        if not entry.quarantined:
            for batch in reader.read(Extent(number)):
                ended = not comparison.compare(source, batch)
                if ended:
                    break
                advance("sources", done, total)
        done += source.num_bytes
        advance("sources", done, total)
    comparison.require_end()
    return comparison.num_encoded


def read_options(dataset: Dataset) -> ReadOptions:
    """The reading options stored in the manifest.

    A transform named there is never imported, because the name comes from the dataset. The user
    must have given the function.

    Raises:
        UserError: the function was not given, or this is a view or adopted.
    """
    run = run_if_kept(dataset)
    if dataset.policies.adopt is not msgspec.UNSET:
        raise UserError(
            "an adopted dataset has no texts",
            where=dataset.location,
            why="its sources are token files, which another tool wrote",
            hint="give files of texts; verify without --against-sources",
        )
    if dataset.is_view or (run is not None and VIEW in run.identity):
        parents = [root.location for root in dataset.roots] if run is None else run.inputs
        raise UserError(
            f"a {'view' if dataset.is_view else 'copy of a view'} has no sources of its own",
            where=dataset.location,
            why="its documents are some of those of other datasets",
            hint=f"give one of those, such as {parents[0]}, or its source files",
        )
    try:
        read = msgspec.convert(dataset.manifest.policies["read"], ReadOptions)
    except msgspec.ValidationError as error:
        where = str(dataset.folder / MANIFEST_NAME)
        raise VerificationError("policies.read is wrong", where=where, why=str(error)) from error
    if read.transform is None:
        return read
    given = given_name(str(dataset.policies.read.transform_sha256))
    if given is None:
        raise UserError(
            "the function that built the texts was not given",
            where=f"{dataset.location}: {read.transform}",
            why="a dataset stores only its name and the digest of its source",
            hint="pass verify(..., transform=function), or --transform python:MODULE:NAME",
        )
    return msgspec.structs.replace(read, transform=given)


def find_again(dataset: Dataset, advance: Advance, part: slice = slice(None)) -> list[Source]:
    """The sources of a dataset, or part of them, where the build read them; those elsewhere at
    their versions.

    Raises:
        VerificationError: manifest and run.json name other inputs.
        UserError: a source is no longer where it was, or has another size.
    """
    run = stored_run(dataset)
    versions = _versions(dataset, run)
    sources = []
    for index, entry in list(enumerate(dataset.manifest.sources))[part]:
        origin, path = entry.origin or "", Path(run.inputs[index])
        source = find_source(index, entry.name, origin, entry.bytes, versions[index], path)
        source = replace(source, format=entry.format, compression=entry.compression)
        sources.append(replace(source, text_field=entry.text_field or ""))
    return _placed(dataset, sources, advance)


def find_kept_sources(dataset: Dataset, advance: Advance) -> list[Source]:
    """Find sources like `find_again`, without quarantined ones, and number them from 0."""
    found = zip(find_again(dataset, advance), dataset.manifest.sources, strict=True)
    kept = [source for source, entry in found if not entry.quarantined]
    return [replace(source, index=index) for index, source in enumerate(kept)]


class _InputIdentity(msgspec.Struct):
    etag: str = ""


class _Identity(msgspec.Struct):
    inputs: list[_InputIdentity]


def _versions(dataset: Dataset, run: Run) -> list[str]:
    """The versions of remote inputs; "" for local ones."""
    where = dataset.location
    try:
        identity = msgspec.convert(run.identity, _Identity)
    except msgspec.ValidationError as error:
        raise VerificationError("run.json names no inputs", where=where, why=str(error)) from error
    counts = [len(dataset.manifest.sources), len(run.inputs), len(identity.inputs)]
    if len(set(counts)) > 1:
        why = f"the manifest names {counts[0]} sources; it names {counts[1]} and {counts[2]}"
        raise VerificationError("run.json names other inputs", where=where, why=why)
    return [known.etag for known in identity.inputs]


def _placed(dataset: Dataset, sources: list[Source], advance: Advance) -> list[Source]:
    """The sources, with remote ones downloaded or streamed.

    It goes to the usual folder of its place: a dataset that was made elsewhere names no folder to
    write.
    """
    access = Access(
        "stream" if dataset.policies.read.streaming is True else "download",
        listener=lambda progress: advance("download", progress.done_bytes, progress.total_bytes),
    )
    return place_sources(sources, access)


class _Comparison:
    """Walks through a dataset and its sources at the same time."""

    def __init__(
        self,
        dataset: Dataset,
        documents: range,
        reference: Reference,
        sample: float,
        limited: bool,
    ) -> None:
        self._documents = iter_documents(dataset, documents)
        self._next = next(self._documents, None)
        self._limited = limited
        self._prefix = dataset.manifest.tokenizer.prefix_ids
        self._eos_id = dataset.manifest.tokenizer.eos_id
        self._is_chat = bool(dataset.policies.chat)
        self._reference = reference
        self._sample = sample
        self.num_encoded = 0

    def compare(self, source: Source, batch: DocumentBatch) -> bool:
        """Compare one batch; false after the last document of a dataset that stopped at a limit."""
        picked = chosen(document_hashes(source.name, batch), self._sample) | (self._sample >= 1)
        without_ids = self._without_ids(batch)
        texts: list[str] = []
        expected: list[tuple[int, np.ndarray | None]] = []
        for index, position in enumerate(batch.positions.tolist()):
            if self._next is None and self._limited:
                break
            stored = None
            is_next = self._next and self._next[:2] == (source.name, position)
            if self._next and is_next and index not in without_ids:
                stored = self._next[2]
                self._next = next(self._documents, None)
            if stored is None or picked[index]:
                texts.append(batch.texts[index])
                expected.append((position, stored))
        self._require_equal(source, texts, expected)
        return self._next is not None or not self._limited

    def _without_ids(self, batch: DocumentBatch) -> set[int]:
        """Empty texts among those that share a record: their position does not identify them."""
        same = np.diff(batch.positions) == 0
        shared = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        if not len(shared):
            return set()
        lengths = self._reference.encode([batch.texts[i] for i in shared.tolist()]).lengths
        return {*shared[lengths == 0].tolist()}

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
                continue  # an empty document: counted, but not written
            ends = [] if self._is_chat and ids[-1:] == self._eos_id else [self._eos_id]
            whole = np.concatenate([self._prefix, ids, ends])
            if not np.array_equal(whole, stored):
                raise VerificationError(
                    "a document differs from its source",
                    where=where,
                    why=f"the dataset holds {len(stored)} ids, the reference gives {len(whole)}",
                )
            self.num_encoded += 1

    def require_end(self) -> None:
        """Raise an error if the dataset holds more documents than its sources."""
        if self._next is not None:
            where = f"{self._next[0]}, position {self._next[1]}"
            raise VerificationError("a document is in no source", where=where)

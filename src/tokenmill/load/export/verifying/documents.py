"""Compares exported documents and their indexes with the dataset, some documents at a time."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.load.export.documents import exporting as documents
from tokenmill.load.export.documents.format import Index
from tokenmill.load.export.documents.megatron import BLEND_NAME, blend_text
from tokenmill.load.export.documents.selection import Selection, Stretch
from tokenmill.load.export.verifying.comparing import Comparison, damaged_export, differs
from tokenmill.load.rows.token_source import Located
from tokenmill.store.exports import DocumentFile, DocumentsManifest
from tokenmill.store.layout import index_bytes


def compare_documents(checked: Comparison, manifest: DocumentsManifest) -> None:
    """Compare all documents of an export, their order and their indexes.

    Raises:
        VerificationError: one differs, or the manifest does not describe them.
    """
    folder, dataset, dtype = checked.folder, checked.dataset, checked.dataset.token_dtype
    format_ = documents.format_of(manifest.options)
    selection = Selection(dataset, manifest.options, checked.advance)
    stretches = format_.stretches(selection)
    parts = [stretch.described for stretch in stretches]
    wanted = msgspec.structs.replace(documents.describe(dataset, manifest.options), parts=parts)
    endings = ["bin"] * format_.copies_tokens + ["idx"] * (format_.index is not None)
    names = [f"{part.name}.{ending}" for part in parts for ending in endings]
    checked.require(wanted, names + [BLEND_NAME] * (format_.describe is not None))
    checked.token_bytes = sum(part.tokens for part in parts) * dtype.itemsize
    path = folder / BLEND_NAME
    if format_.describe is not None and not _is_blend(path.read_bytes(), parts):
        why = "it does not list the files with their tokens"
        raise damaged_export("the blend of the export is wrong", path, why)
    for stretch in stretches:
        described, path = stretch.described, folder / f"{stretch.described.name}.bin"
        sizes = {"bin": described.tokens * dtype.itemsize, "idx": index_bytes(described.documents)}
        for ending in endings:
            file, size = path.with_suffix(f".{ending}"), sizes[ending]
            if file.stat().st_size != size:
                why = f"{described.documents:,} documents have {size:,} bytes"
                raise damaged_export("a file of the export has another size", file, why)
        if stretch.shard is not None:
            shard = dataset.shards[stretch.shard].path("bin")
            if not path.is_symlink() or not path.exists() or not path.samefile(shard):
                raise damaged_export("a link of the export is wrong", path, "it leads elsewhere")
        if format_.index is None:
            _compare_stretch(checked, selection, stretch, path, None)
            continue
        with closing(_ComparedFile(path.with_suffix(".idx"))) as compared:
            index = format_.index(path.with_suffix(""), dtype, described.documents, compared)
            _compare_stretch(checked, selection, stretch, path, index)


def _is_blend(content: bytes, parts: list[DocumentFile]) -> bool:
    """Whether a blend is of these files, in any one folder: the export may have moved."""
    try:
        entries = [each for each in json.loads(content).values() if each]
        folder = Path(entries[0][1]).parent
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError):
        return False
    return content == blend_text(parts, folder).encode()


def _compare_stretch(
    checked: Comparison, selection: Selection, stretch: Stretch, path: Path, index: Index | None
) -> None:
    """Compare the documents of a file; if it is a link to a shard, only their index."""
    dtype, document = selection.dataset.token_dtype, 0
    with path.open("rb") as file:
        for located, _ in selection.read(stretch, with_tokens=False):
            if index is not None:
                index.append(located)
            for some in located.batches():
                num_tokens = int(some.lengths.sum())
                if not checked.takes(num_tokens * dtype.itemsize, first=not document):
                    file.seek(num_tokens * dtype.itemsize, 1)
                else:
                    if stretch.shard is None:
                        found = np.fromfile(file, dtype, num_tokens)
                        _compare(path, found, selection.reader.read(some), some, document)
                    checked.documents += len(some.lengths)
                    checked.tokens += num_tokens
                document += len(some.lengths)


def _compare(
    path: Path, found: npt.NDArray[np.integer], expected: npt.NDArray[np.integer],
    located: Located, first: int,
) -> None:  # fmt: skip
    """Compare the tokens of documents, of which the first has this number in its file."""
    if not np.array_equal(found, expected):
        at, stops = int((found != expected).argmax()), np.cumsum(located.lengths)
        number = int(np.searchsorted(stops, at, side="right"))
        place = at - int(stops[number] - located.lengths[number])
        known = f"document {first + number:,} ({located.documents[number]:,} of the dataset)"
        raise differs(path, f"{known}, token {place:,}", found[at], expected[at])


class _ComparedFile:
    """A file to write what it should hold already."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("rb")

    def seek(self, place: int) -> None:
        """Go on at a byte."""
        self._file.seek(place)

    def write(self, data: bytes | memoryview) -> None:
        """Raise a VerificationError if the next bytes are others."""
        place, found = self._file.tell(), self._file.read(len(data))
        if found != data:
            at = next(at for at, byte in enumerate(found) if byte != data[at])
            why = f"byte {place + at:,}: {found[at]} in the file, {data[at]} as expected"
            raise damaged_export("an index differs from its dataset", self._path, why)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

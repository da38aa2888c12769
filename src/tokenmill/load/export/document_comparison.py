"""Compares exported documents and their indexes with the dataset, some documents at a time."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.load.export import documents
from tokenmill.load.export.comparing import (
    Checked,
    Share,
    damaged_export,
    differs,
    require_described,
    require_names,
)
from tokenmill.load.export.document_format import Format
from tokenmill.load.export.megatron import BLEND_NAME, IndexArrays, array_starts, blend_text
from tokenmill.load.export.selection import Selection, Stretch
from tokenmill.load.export.token_source import Located
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.exports import DocumentFile, DocumentsManifest
from tokenmill.store.layout import read_index_header


def compare_documents(checked: Checked, manifest: DocumentsManifest, share: Share) -> None:
    """Compare all documents of an export, their order and their indexes.

    Raises:
        VerificationError: one differs, or the manifest does not describe them.
    """
    folder, dataset = checked.folder, checked.dataset
    format_ = documents.format_of(manifest.options)
    selection = Selection(dataset, manifest.options, share.advance)
    stretches = format_.stretches(selection)
    parts = [stretch.described for stretch in stretches]
    wanted = msgspec.structs.replace(documents.describe(dataset, manifest.options), parts=parts)
    require_described(folder, manifest, wanted)
    share.total = sum(part.tokens for part in parts) * dataset.token_dtype.itemsize
    endings = ["bin"] * format_.copies_tokens + ["idx"] * (format_.index is not None)
    blend = [BLEND_NAME] * (format_.describe is not None)
    expected = [f"{part.name}.{ending}" for part in parts for ending in endings] + blend
    require_names(folder, expected, iter([entry.name for entry in manifest.files]))
    for stretch in stretches:
        path = folder / stretch.described.name
        index = None
        if format_.index is not None:
            index = _Index(path.with_name(f"{path.name}.idx"), dataset, stretch, format_)
        path = path.with_name(f"{path.name}.bin")
        if not format_.copies_tokens:
            assert stretch.shard is not None  # because an index is over a shard
            if not path.is_symlink() or not _leads_to(path, dataset.shards[stretch.shard]):
                raise damaged_export("a link of the export is wrong", path, "it leads elsewhere")
        _compare_stretch(checked, selection, stretch, path, index, share)
    for path in (folder / name for name in blend):
        if not _is_blend(path.read_bytes(), parts):
            why = "it does not list the files with their tokens"
            raise damaged_export("the blend of the export is wrong", path, why)


def _leads_to(link: Path, shard: Shard) -> bool:
    return link.exists() and link.samefile(shard.path("bin"))


def _is_blend(content: bytes, parts: list[DocumentFile]) -> bool:
    """Whether a blend is of these files, in any one folder."""
    try:
        entries = [each for each in json.loads(content).values() if each]
        folder = Path(entries[0][1]).parent
    except (ValueError, AttributeError, LookupError, TypeError):
        return False
    return content == blend_text(parts, folder).encode()


def _compare_stretch(
    checked: Checked,
    selection: Selection,
    stretch: Stretch,
    path: Path,
    index: _Index | None,
    share: Share,
) -> None:
    """Compare the documents of a file."""
    dtype, document = selection.dataset.token_dtype, 0
    copies = not path.is_symlink()
    if copies and path.stat().st_size != stretch.described.tokens * dtype.itemsize:
        why = f"it should have {stretch.described.tokens:,} tokens of {dtype}"
        raise damaged_export("a file has another size", path, why)
    with path.open("rb") as file:
        for located, _ in selection.read(stretch, with_tokens=False):
            if index is not None:
                index.compare(located, document)
            for some in located.batches():
                num_tokens = int(some.lengths.sum())
                if not share.takes(num_tokens * dtype.itemsize, first=not document):
                    file.seek(num_tokens * dtype.itemsize, 1)
                else:
                    if copies:
                        found = np.fromfile(file, dtype, num_tokens)
                        _compare_tokens(path, found, selection.reader.read(some), some, document)
                    checked.documents += len(some.lengths)
                    checked.tokens += num_tokens
                document += len(some.lengths)


def _compare_tokens(
    path: Path,
    found: npt.NDArray[np.integer],
    expected: npt.NDArray[np.integer],
    located: Located,
    first: int,
) -> None:
    """Compare the tokens of documents, of which the first has this number in its file."""
    if np.array_equal(found, expected):
        return
    at, stops = int((found != expected).argmax()), np.cumsum(located.lengths)
    number = int(np.searchsorted(stops, at, side="right"))
    place = at - int(stops[number] - located.lengths[number])
    what = f"document {first + number:,} ({located.documents[number]:,} of the dataset)"
    raise differs(path, what, place, found[at], expected[at])


class _Index:
    """An `.idx` file, which is compared as far as documents were read."""

    def __init__(self, path: Path, dataset: Dataset, stretch: Stretch, format_: Format) -> None:
        """Check its header and its size.

        Raises:
            VerificationError: it is of other documents.
        """
        self._path, count = path, stretch.described.documents
        if read_index_header(path) != (dataset.token_dtype, count):
            why = f"it should have {count:,} documents of {dataset.token_dtype}"
            raise damaged_export("an index is of other documents", path, why)
        self._data = np.memmap(path, np.uint8, "r")
        self._arrays = IndexArrays(dataset.token_dtype, joined=format_.copies_tokens)
        self._places = array_starts(count)
        if self._data[self._places[2] - 8 : self._places[2]].any():
            raise damaged_export("an index is wrong", path, "its documents do not begin with 0")

    def compare(self, located: Located, first: int) -> None:
        """Compare the following documents, of which the first has this number."""
        for number, expected in enumerate(self._arrays.following(located)):
            found = np.frombuffer(self._data, expected.dtype, len(expected), self._places[number])
            self._places[number] += expected.nbytes
            if not np.array_equal(found, expected):
                at = int((found != expected).argmax())
                name = ("length", "offset", "number of sequences")[number]
                why = f"document {first + at:,}, {name}: {found[at]} instead of {expected[at]}"
                raise damaged_export("an index differs from its dataset", self._path, why)

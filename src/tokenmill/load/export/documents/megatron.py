"""Documents in Megatron's layout: pairs of .bin and .idx files, or only .idx files; `blend.json`.

    train-00000.bin, .idx        documents of shards, joined
    validation-00000.bin, .idx
    blend.json                   {"train": [weight, prefix, ...], "valid": ..., "test": null}

The weight of a pair is its number of tokens, so that a blend draws from all documents alike.

With `index_only`, each .idx lists documents of one shard, and the .bin beside it is a link to the
tokens of that shard. Megatron finds a sequence by its offset, so an index may leave out and reorder
documents. But `IndexedDataset[a:b]` reads on from the first offset, and returns wrong tokens.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.records import Int64Array
from tokenmill.load.export.documents.format import Format
from tokenmill.load.export.documents.selection import Selection, Stretch
from tokenmill.load.export.folder import flushed
from tokenmill.load.rows.token_source import Located
from tokenmill.store.exports import DocumentFile, DocumentsManifest
from tokenmill.store.files import write_pieces
from tokenmill.store.layout import DTYPE_CODES, HEADER, MAGIC
from tokenmill.store.manifest import FileEntry

FILE_BYTES = 10_000_000_000
"""Default of the least size of a .bin file: NeMo's guide asks for as much."""
BLEND_NAME = "blend.json"
SUBSETS = {"train": "train", "validation": "valid"}
"""Megatron's names of subsets."""


def _joined(selection: Selection) -> list[Stretch]:
    """Files of at least `file_size`, for each subset."""
    size = selection.options.file_size or FILE_BYTES
    least = -(-size // selection.dataset.token_dtype.itemsize)
    subsets = selection.subsets
    return [s for name in subsets for s in selection.stretches(name, name + "-{:05d}", least)]


def _of_shards(selection: Selection) -> list[Stretch]:
    """A file for each subset and shard."""
    subsets = selection.subsets
    return [s for name in subsets for s in selection.by_shard(name, name + "-{:05d}")]


def blend_text(parts: list[DocumentFile], folder: Path) -> str:
    """The content of `blend.json` for files in a folder, each weighted by its tokens."""
    blend: dict[str, list[str] | None] = {"train": None, "valid": None, "test": None}
    for part in parts:
        name, prefix = SUBSETS[part.subset], str(folder / part.name)
        blend[name] = [*(blend[name] or []), str(part.tokens), prefix]
    return json.dumps(blend, indent=2) + "\n"


def _blend(manifest: DocumentsManifest, folder: Path, out: Path) -> DocumentsManifest:
    """Write `blend.json`."""
    path, place = folder / BLEND_NAME, out.absolute() / BLEND_NAME
    path.write_text(blend_text(manifest.parts, place.parent))
    return msgspec.structs.replace(
        manifest,
        files=[*manifest.files, flushed(path)],
        arguments={
            "Megatron-LM": f"--per-split-data-args-path {place}",
            "Megatron Bridge (NeMo)": f"per_split_data_args_path={place}",
        },
    )


class MegatronIndex:
    """Writes an index in pieces: its three arrays grow at once, so that memory holds none."""

    def __init__(
        self,
        path: Path,
        dtype: np.dtype[np.integer],
        num_documents: int,
        file: Any = None,
        *,
        joined: bool,
    ) -> None:
        """Begin an index; without a `file` to write to, beside `path`, with the ending `.idx`."""
        self._path = path.with_name(f"{path.name}.idx")
        self._file = file or open(self._path, "wb")  # noqa: SIM115 - closed by close()
        self._joined, self._item = joined, dtype.itemsize
        self._starts = [HEADER.size + size * num_documents for size in (0, 4, 12)]
        """Where the lengths, the offsets and the numbers of documents begin."""
        self._documents = self._bytes = 0
        code = DTYPE_CODES[dtype]
        self._file.write(HEADER.pack(MAGIC, 1, code, num_documents, num_documents + 1))
        self._write(2, 0, np.zeros(1, "<i8"))

    def append(self, located: Located) -> None:
        """Add documents, which are joined, or lie where the dataset has them."""
        lengths, count = located.lengths, len(located.lengths)
        offsets = located.starts * self._item
        if self._joined:
            stops = self._bytes + np.cumsum(lengths) * self._item
            offsets, self._bytes = stops - lengths * self._item, int(stops[-1])
        numbers = np.arange(1, count + 1) + self._documents
        self._write(0, self._documents, lengths.astype("<i4"))
        self._write(1, self._documents, offsets.astype("<i8"))
        self._write(2, self._documents + 1, numbers.astype("<i8"))
        self._documents += count

    def _write(self, array: int, place: int, values: Int64Array) -> None:
        self._file.seek(self._starts[array] + values.itemsize * place)
        write_pieces(self._file, values)

    def finish(self) -> FileEntry:
        """Flush the index to disk and describe it."""
        self._file.close()
        return flushed(self._path)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


PAIRS = Format(_joined, partial(MegatronIndex, joined=True), describe=_blend)
INDEXES = Format(
    _of_shards, partial(MegatronIndex, joined=False), copies_tokens=False, describe=_blend
)

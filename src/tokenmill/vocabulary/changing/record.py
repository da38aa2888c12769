"""Write the folder of an extended or trimmed tokenizer atomically, with a record of the change.

tokenizer.json           the tokenizer, next to other files of the old one
embeddings.json          how to initialise the embedding rows (`store/embedding_plan.py`)
ids.json                 if trimmed: the new id of each old one
tokenizer.tiktoken       if a rank file was trimmed: the new ranks
extend.json, trim.json   options, figures, and the origin of the tokenizer
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import xxhash

from tokenmill.core.errors import OutputConflictError
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.files import fsync_path, rename_flushed, storage_errors, temporary_folder
from tokenmill.store.manifest import FileEntry

FORMAT = "tokenmill-tokenizer-change"
VERSION = 1


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The record of how a tokenizer was derived from another one."""

    format: str = FORMAT
    format_version: int = VERSION
    action: Literal["extend", "trim"]
    options: dict[str, Any]
    base: str
    """Fingerprint of the old tokenizer."""
    tokenizer: str
    """Fingerprint of the new one."""
    counts_id: str
    """The id of the word counts."""
    words: int
    occurrences: int
    figures: dict[str, int]
    versions: dict[str, str]
    files: list[FileEntry] = []
    digest: str = ""


def require_free(out: Path) -> None:
    """Raise an OutputConflictError if the folder exists."""
    if out.exists() or out.is_symlink():
        raise OutputConflictError(
            "the output folder already exists",
            where=str(out),
            hint="choose another folder, or remove this one",
        )


def write_change(out: Path, files: Mapping[str, bytes], change: Change) -> Change:
    """Write all files and the record of the change; the folder appears atomically.

    Raises:
        OutputConflictError: the folder already exists.
        StorageError: the file system refused to write.
    """
    require_free(out)
    entries = [
        FileEntry(name=name, bytes=len(data), xxh3_128=xxhash.xxh3_128_hexdigest(data))
        for name, data in sorted(files.items())
    ]
    change = sealed(msgspec.structs.replace(change, files=entries))
    all_files = {**files, f"{change.action}.json": canonical_json(change)}
    with storage_errors("write the tokenizer", out), temporary_folder(out) as temporary:
        for name, data in all_files.items():
            (temporary / name).write_bytes(data)
            fsync_path(temporary / name)
        fsync_path(temporary)
        rename_flushed(temporary, out)
    return change

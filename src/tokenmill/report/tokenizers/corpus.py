"""The text to measure tokenizers on: files, the sources of a dataset, or counted words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path
from tokenmill.core.records import Advance
from tokenmill.read.fields import Fields
from tokenmill.read.preview import check_fields
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import fetch_sources
from tokenmill.report.comparison import find_kept_sources, read_options
from tokenmill.run.recipe.options import INPUT_GROUPS, ReadOptions, grouped_reading
from tokenmill.run.start.counting import list_with_groups
from tokenmill.store.counts.folder import is_counts_folder
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import MANIFEST_NAME


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents to read, and how they are grouped."""

    sources: list[Source]
    fields: Fields
    by: str | None
    """The column whose values are the groups, or `input`; None: all documents are one group."""
    origin: str
    notes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """The group of each source; empty if groups are something else."""

    @property
    def column(self) -> str:
        """The column whose values are the groups; "" if groups do not come from the documents."""
        return self.fields.keep[0] if self.fields.keep else ""


def is_counts(inputs: Sequence[str]) -> bool:
    """Whether the inputs are a folder of counts."""
    return len(inputs) == 1 and Path(inputs[0]).is_dir() and is_counts_folder(inputs[0])


def open_corpus(
    inputs: Sequence[str], read: ReadOptions, by: str | None, advance: Advance
) -> Corpus:
    """The documents of files, or of the sources that a dataset was built from.

    A dataset's own options of reading count, and `read` only adds the column.

    Raises:
        UserError: an input or a column does not exist.
    """
    origin = ", ".join(inputs)
    folder = local_path(inputs[0], "the dataset") if len(inputs) == 1 else None
    if folder is not None and (folder / MANIFEST_NAME).is_file():
        dataset = Dataset(folder)
        stored = read_options(dataset)
        sources = find_kept_sources(dataset, advance)
        notes = _notes_of(stored, len(dataset.manifest.sources) - len(sources))
        read, names = stored, [source.name for source in sources]
    else:
        access, notes = _access(read, advance), ()
        listed, names = list_with_groups(inputs, read.format, access)
        sources = fetch_sources(listed, read.format, access)
    fields = grouped_reading(read, by).fields
    check_fields(sources, fields)
    sources = [replace(source, index=index) for index, source in enumerate(sources)]
    if not sources:
        raise UserError("no documents to measure", where=origin)
    groups = tuple(names) if by == INPUT_GROUPS else ()
    return Corpus(sources, fields, by and by.removesuffix("?"), origin, notes, groups)


def _access(read: ReadOptions, advance: Advance) -> Access:
    return Access(
        "stream" if read.streaming else "download",
        listener=lambda progress: advance("download", progress.done_bytes, progress.total_bytes),
    )


def _notes_of(read: ReadOptions, num_quarantined: int) -> tuple[str, ...]:
    notes = []
    if read.max_documents is not None or read.max_tokens is not None:
        notes.append("the dataset stopped at a limit; all documents of its sources are measured")
    if num_quarantined:
        notes.append(f"{num_quarantined:,} damaged sources of the dataset are left out")
    return tuple(notes)

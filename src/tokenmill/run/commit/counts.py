"""Merge the sorted runs of all units into a folder of word counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenmill.core.errors import DataError, InternalError
from tokenmill.encode.words.counts import WordCounts
from tokenmill.encode.words.splits import Split
from tokenmill.read.source import Source
from tokenmill.run.commit.publish import describe_sources, rejected_files
from tokenmill.run.commit.receipts import judge_rejected
from tokenmill.run.commit.workspace import OutputKind, Workspace
from tokenmill.run.units.assignment import Receipt
from tokenmill.run.units.tasks import MAX_GROUPS, RUN_PREFIX, too_many_groups
from tokenmill.store.counts.folder import COUNTS_FORMAT, COUNTS_NAME, Description, write_counts
from tokenmill.store.counts.runs import open_run
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import Counts, FileEntry
from tokenmill.store.ownership import COUNTS_FILES

COUNTS_OUTPUT = OutputKind(
    manifest=COUNTS_NAME,
    start=b'{\n  "format": "%s",\n' % COUNTS_FORMAT.encode(),
    folders=("rejected", "work"),
    files=COUNTS_FILES,
    noun="word counts",
    the="the word counts",
    other="other word counts",
)


def describe_counts(
    split: Split,
    by: str,
    min_count: int,
    policies: dict[str, Any],
    sources: Sequence[Source],
    receipts: Sequence[Receipt],
    quarantined: Mapping[int, str],
) -> Description:
    """Return the description of a folder of counts: options, sources and totals."""
    entries = describe_sources(sources, receipts, quarantined)
    totals = Counts()
    for entry in entries:
        totals.add(entry.counts)
    return Description(
        split=split,
        by=by,
        min_count=min_count,
        policies=policies,
        totals=totals,
        sources=entries,
    )


def judge_counts(
    workspace: Workspace, description: Description, receipts: Sequence[Receipt], max_bad: float
) -> None:
    """Raise a DataError if too many records were rejected, or there are no documents."""
    names = [file.name for file in rejected_files(receipts)]
    judge_rejected(description.totals, max_bad, workspace.store, names)
    if not description.totals.documents:
        raise DataError("nothing to count", why="no input holds a document with text")


def merge_runs(workspace: Workspace, description: Description, receipts: Sequence[Receipt]) -> None:
    """Merge the runs of all units into the folder, which completes the counts.

    Raises:
        DataError: there are too many groups.
    """
    groups: dict[str, list[WordCounts]] = {} if description.by else {"": []}
    occurrences = 0
    for receipt, file in _runs(receipts):
        for name, words in open_run(workspace.folder / part_name(receipt.key, file.name)).items():
            groups.setdefault(name, []).append(words)
            occurrences += words.num_occurrences
    if len(groups) > MAX_GROUPS:
        raise too_many_groups(description.by)
    if occurrences != description.totals.tokens:
        why = f"units counted {description.totals.tokens:,}, their runs hold {occurrences:,}"
        raise InternalError("the totals of word counts do not match", why=why)
    for counts in (description.totals, *(source.counts for source in description.sources)):
        counts.tokens = 0  # the groups record the number of words
    write_counts(workspace.folder, description, groups)


def _runs(receipts: Sequence[Receipt]) -> Iterator[tuple[Receipt, FileEntry]]:
    for receipt in receipts:
        for file in receipt.files:
            if file.name.startswith(RUN_PREFIX):
                yield receipt, file

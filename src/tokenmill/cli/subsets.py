"""The lines about subsets in the summary of a build and in `inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokenmill.cli.quantities import counted

if TYPE_CHECKING:
    from tokenmill.report.contents import SubsetCounts

NOTE = (
    "tokens/ holds both subsets. Plans leave validation out by default; other readers see it.",
    "To skip it there: each file in tokens/ has a table of the same name in documents/. Its",
    "rows are the documents in order, and its column `subset` is 'train' or 'validation'.",
)


def subset_facts(subsets: dict[str, SubsetCounts]) -> list[tuple[str, str]]:
    """Names and values of the lines; empty if the dataset has no validation subset."""
    if not subsets:
        return []
    facts = [
        (name, f"{counted(counts.documents, 'document')}, {counted(counts.tokens, 'token')}")
        for name, counts in subsets.items()
    ]
    return [*facts, ("note", NOTE[0]), *(("", line) for line in NOTE[1:])]

"""What `tokenizer count` shows before and after counting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import msgspec

from tokenmill.cli.display import Shown
from tokenmill.cli.summary import (
    documents_text,
    reasons_text,
    reused_facts,
    speed_fact,
    time_facts,
)
from tokenmill.cli.tables import fact_lines, next_text
from tokenmill.core.values import counted, size_text
from tokenmill.reports.contents import audited_text
from tokenmill.run.tasks.count import CountReport, CountTask

MAX_SHOWN_GROUPS = 12
GROUP_COUNTS = ("words", "occurrences", "bytes", "left_out")


def _facts(prepared: CountTask) -> Iterator[tuple[str, str]]:
    resources, recipe = prepared.resources, prepared.recipe
    yield "inputs", f"{counted(len(prepared.sources), 'file')}, {size_text(prepared.num_bytes)}"
    yield "split", prepared.split.name or f"from {recipe.split}, digits {recipe.digits}"
    yield "groups", f"by {recipe.by}" if recipe.by else "one"
    if recipe.min_count > 1:
        yield "left out", f"words that occur fewer than {recipe.min_count:,} times"
    yield "workers", f"{resources.num_workers} ({resources.workers_reason})"
    yield "memory", size_text(resources.memory_bytes)


def _opening(prepared: CountTask) -> Iterator[tuple[str, str]]:
    recipe = prepared.recipe
    size = f"{counted(len(prepared.sources), 'file')}, {size_text(prepared.num_bytes)}"
    by = f", grouped by {recipe.by}" if recipe.by else ""
    yield "reading", f"{size}, split into words by {prepared.split.name or recipe.split}{by}"


def _lines(report: CountReport, startup: float, verbose: bool) -> list[str]:
    counts, manifest = report.counts, report.counts.manifest
    lines = [""]
    if report.run is not None and report.snapshot is None:
        lines.append("nothing to do: the counts are complete")
        lines += fact_lines((("note", remark) for remark in report.remarks), 12)
    totals, left_out = manifest.totals, counts.left_out
    facts = [
        ("counts", f"{counts.folder} (id {manifest.counts_id})"),
        ("documents", documents_text(totals)),
        *_word_facts(report),
        ("rejected", reasons_text(totals, counts.folder)),
    ]
    if manifest.min_count > 1:
        what = (
            f"{counted(left_out.words, 'word')} with fewer than {manifest.min_count:,} occurrences"
        )
        size = f"{left_out.occurrences:,} occurrences, {size_text(left_out.bytes)}"
        facts.append(("left out", f"{what}: {size}"))
    if report.run is not None:
        engine = report.run.engine
        checked = "which defines the split"
        if engine != "library":
            checked = audited_text(report.run, "the library")
        facts.append(("split by", f"{engine}, {checked}"))
    if report.run is not None and (shot := report.snapshot) is not None:
        facts += [*reused_facts(report.reused), speed_fact(shot, report.run, "words")]
        facts += time_facts(shot, report.run, startup, verbose=verbose)
    lines += fact_lines(facts, 12)
    command = ("tokenmill", "tokenizer", "train", str(counts.folder), "--out", "tokenizer/")
    return [*lines, "", next_text(command)]


def _word_facts(report: CountReport) -> Iterator[tuple[str, str]]:
    manifest = report.counts.manifest
    occurrences = sum(group.occurrences for group in manifest.groups)
    num_bytes = sum(group.bytes for group in manifest.groups)
    if not manifest.by:
        unique = sum(group.words for group in manifest.groups)
        yield "words", f"{occurrences:,}, {unique:,} of them unique; {size_text(num_bytes)}"
        return
    yield "words", f"{occurrences:,} in {counted(len(manifest.groups), 'group')}"
    groups = sorted(manifest.groups, key=lambda group: (-group.bytes, group.name))
    for group in groups[:MAX_SHOWN_GROUPS]:
        shown = f"{group.occurrences:,}, {group.words:,} unique; {size_text(group.bytes)}"
        yield "", f"{group.name}: {shown}"
    if more := len(groups) - MAX_SHOWN_GROUPS:
        yield from [("", f"... and {more:,} more")] if more > 0 else []


def _values(report: CountReport) -> dict[str, object]:
    manifest, run = report.counts.manifest, report.run
    return {
        "resumed": report.snapshot is not None and report.snapshot.resumed_bytes > 0,
        "complete_before": run is not None and report.snapshot is None,
        "reused": asdict(report.reused) if report.reused else None,
        "remarks": report.remarks,
        "out": str(report.counts.folder),
        "counts_id": manifest.counts_id,
        "totals": msgspec.to_builtins(manifest.totals),
        "groups": {
            group.name: {name: getattr(group, name) for name in GROUP_COUNTS}
            for group in manifest.groups
        },
        "min_count": manifest.min_count,
        "splitter": run.engine if run else None,
        "audited_documents": run.audited_documents if run else 0,
        "seconds": run.seconds if run else {},
        "peak_bytes": report.snapshot.peak_bytes if report.snapshot else None,
    }


COUNT = Shown("words", _lines, _values, _facts, _opening)

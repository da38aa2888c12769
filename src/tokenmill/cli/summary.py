"""What `build` shows before its first unit and after its last: six lines, or all figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from tokenmill.cli.display import Shown
from tokenmill.cli.tables import fact_lines
from tokenmill.core.values import (
    counted,
    duration_text,
    rounded,
    size_text,
    speed_text,
    unknown_facts,
)
from tokenmill.reports.contents import count_subsets, exactness_text, subset_facts
from tokenmill.run.tasks.encode import BuildReport, EncodeTask

if TYPE_CHECKING:
    from pathlib import Path

    from tokenmill.packing.planning import PlanReport
    from tokenmill.reports.contents import SubsetCounts
    from tokenmill.run.journal.ledger import Reused
    from tokenmill.run.progress import Snapshot
    from tokenmill.store.manifest import Counts, Run
    from tokenmill.store.policies import Policies

STAGES = ("read", "encode", "split", "write", "fsync")


def summary_lines(report: BuildReport, startup: float, verbose: bool) -> list[str]:
    """The summary of a build: its counts, how exact it is, and its speed.

    `startup` is the time in seconds before the first unit: imports, workers, preparation. Only
    `verbose` shows it, the stages, memory, and what else is in run.json and manifest.json.
    """
    manifest, run = report.manifest, report.run
    totals = manifest.totals
    lines = [""]
    if report.snapshot is None:
        lines.append("the build is finished: the dataset is complete")
        lines += fact_lines((("note", remark) for remark in report.remarks), 12)
    facts = [
        ("documents", documents_text(totals)),
        ("tokens", f"{totals.tokens:,} in {report.out} (id {manifest.dataset_id})"),
        *subset_facts(subsets_of(report))[: None if verbose else 2],
        ("rejected", reasons_text(totals, report.out)),
        *unknown_facts(totals.unknown_tokens, totals.tokens),
        ("exactness", exactness_text(run)),
    ]
    if verbose:
        facts += [
            ("shards", f"{len(manifest.shards):,}"),
            ("special", f"{counted(totals.special_strings, 'special-token string')} in text"),
            ("engine", run.engine),
        ]
    if (shot := report.snapshot) is not None:
        facts += [*reused_facts(report.reused), speed_fact(shot, run, "tokens")]
        facts += time_facts(shot, run, startup, verbose=verbose)
    lines += fact_lines(facts, 12)
    return lines + _plan_lines(report, verbose)


def documents_text(totals: Counts) -> str:
    """Documents, the records that they come from, and how many of these are empty."""
    empty = f", {totals.empty:,} empty" if totals.empty else ""
    return f"{totals.documents:,} of {counted(totals.records, 'record')}{empty}"


def subsets_of(report: BuildReport) -> dict[str, SubsetCounts]:
    """Documents and tokens of each subset; none without a validation subset."""
    if report.opened is None or not report.opened.policies.read.validation:
        return {}
    return count_subsets(report.opened)


def _plan_lines(report: BuildReport, verbose: bool) -> list[str]:
    if not report.plans:
        return []
    from tokenmill.cli.plan_display import plan_lines

    shown = (plan_lines(plan, _place(report, plan), verbose) for plan in report.plans)
    return [line for lines in shown for line in ("", *lines)]


def plans_as_values(report: BuildReport) -> list[dict[str, object]]:
    """The plans of a build as values for JSON."""
    if not report.plans:
        return []
    from tokenmill.cli.plan_display import plan_values

    return [plan_values(plan, _place(report, plan)) for plan in report.plans]


def _place(report: BuildReport, plan: PlanReport) -> str:
    """The place of a plan in a bucket, because its folder was temporary; else ""."""
    return "" if report.opened else f"{report.out}/plans/{plan.plan.folder.name}"


def reused_facts(found: Reused | None) -> list[tuple[str, str]]:
    """The line about work reused from earlier attempts; empty if there is none."""
    if found is None:
        return []
    spared = f"{counted(found.units, 'finished unit')}, {size_text(found.bytes)}"
    return [("reused", f"{spared}; saved about {duration_text(found.seconds)}")]


def reasons_text(totals: Counts, out: str | Path) -> str:
    """Rejected records by reason, and the folder that lists them."""
    if not totals.rejected:
        return "0"
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in totals.rejected.items())
    return f"{totals.num_rejected:,}: {reasons}, listed in {out}/rejected"


def memory_text(peak_bytes: int, run: Run) -> str:
    """The peak memory of all processes, and how far it exceeds the budget of the last attempt."""
    text, budget = f"{size_text(peak_bytes)} at most", _memory_budget(run)
    if budget is None or peak_bytes <= budget:
        return text
    more = f"{size_text(peak_bytes - budget)} ({peak_bytes / budget - 1:.0%})"
    return (
        f"{text}, {more} more than the {size_text(budget)} of --memory, which is not a hard limit"
    )


def _memory_budget(run: Run) -> int | None:
    """The budget of the last attempt; counts list no attempts."""
    return run.attempts[-1].memory_bytes if run.attempts else None


def speed_fact(shot: Snapshot, run: Run, what: str) -> tuple[str, str]:
    """The line about the time of this attempt, and what it did in a second."""
    wall, before = run.seconds.get("wall", 0.0), shot.resumed
    documents, items = shot.documents - before.documents, shot.tokens - before.tokens
    text = speed_text(wall, documents, items, what, shot.read_bytes - before.bytes)
    return "speed", f"{wall:.1f} s: {text}"


def time_facts(
    shot: Snapshot, run: Run, startup: float, *, verbose: bool
) -> Iterator[tuple[str, str]]:
    """The lines about stages and memory; unless `verbose`, only if memory exceeded the budget."""
    if verbose:
        fresh, wall = shot.done_bytes - shot.resumed_bytes, run.seconds.get("wall", 0.0)
        yield "start-up", f"{startup:.1f} s before that"
        yield "input", f"{size_text(fresh / max(wall, 1e-9), rounded)} a second, as it is on disk"
    budget = _memory_budget(run)
    if verbose or (budget is not None and shot.peak_bytes > budget):
        yield "memory", memory_text(shot.peak_bytes, run)
    stages = {name: seconds for name, seconds in run.seconds.items() if name in STAGES}
    if verbose and stages:
        slowest = max(stages, key=lambda name: stages[name])
        each = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in stages.items())
        yield "bottleneck", f"{slowest} ({each})"


def _values(report: BuildReport) -> dict[str, object]:
    """The summary as values for JSON."""
    run, manifest = report.run, report.manifest
    return {
        "resumed": report.snapshot is None or report.snapshot.resumed_bytes > 0,
        "complete_before": report.snapshot is None,
        "reused": asdict(report.reused) if report.reused else None,
        "remarks": report.remarks,
        "out": report.out,
        "dataset_id": manifest.dataset_id,
        "totals": msgspec.to_builtins(manifest.totals),
        "subsets": subsets_of(report),
        "shards": len(manifest.shards),
        "engine": run.engine,
        "audited_documents": run.audited_documents,
        "audit": msgspec.to_builtins(run.audit) if run.audit else None,
        "seconds": run.seconds,
        "peak_bytes": report.snapshot.peak_bytes if report.snapshot else run.peak_bytes,
        "memory_bytes": _memory_budget(run),
        "plans": plans_as_values(report),
    }


def _facts(prepared: EncodeTask) -> Iterator[tuple[str, str]]:
    resources, boundary = prepared.resources, prepared.boundary
    yield "inputs", f"{counted(len(prepared.sources), 'file')}, {size_text(prepared.num_bytes)}"
    file = prepared.file
    yield "tokenizer", f"{file.origin} ({file.kind}, {prepared.reference.largest_id + 1:,} ids)"
    yield "ids", prepared.dtype_name
    yield "end", f"id {boundary.eos_id}, from {boundary.eos_reason}"
    yield "beginning", f"ids {list(boundary.prefix)}" if boundary.prefix else "nothing"
    yield "padding", "not named" if boundary.pad_id is None else f"id {boundary.pad_id}"
    yield from _readings(prepared.policies)
    yield "workers", f"{resources.num_workers} ({resources.workers_reason})"
    yield "memory", size_text(resources.memory_bytes)
    for name, why in prepared.candidates.remarks.items():
        yield "not used", f"{name}: {why}"


def _opening(prepared: EncodeTask) -> Iterator[tuple[str, str]]:
    file, boundary, candidates = prepared.file, prepared.boundary, prepared.candidates
    size = f"{counted(len(prepared.sources), 'file')}, {size_text(prepared.num_bytes)}"
    end = f"end of document: id {boundary.eos_id}, from {boundary.eos_reason}"
    ids = f"{prepared.reference.largest_id + 1:,} ids"
    yield "reading", f"{size}, with {file.origin} ({ids}; {end})"
    remarks = candidates.remarks
    if candidates.installable & remarks.keys():
        yield from (("not used", f"{name}: {remarks[name]}") for name in candidates.installable)
    elif remarks:
        why = "no faster engine gives exactly its ids; --verbose says why"
        yield "engine", f"the tokenizer's own library, because {why}"


def _readings(policies: Policies) -> Iterator[tuple[str, str]]:
    """The lines about special tokens and conversations."""
    special = policies.encode.special_tokens
    if not (chat := policies.chat):
        yield "special", f"strings in text are read as {special}"
        return
    if special == "control":
        yield "special", "strings in the contents of messages are read as control tokens"
    else:
        markers = " and turn markers" if policies.has_template else ""
        yield "special", f"strings{markers} in the contents of messages are not accepted"
    loss = "the completion" if chat.chat == "prompt-completion" else ", ".join(chat.loss_on)
    yield "chat", f"{chat.chat}, with loss on {loss}"


BUILD = Shown("tokens", summary_lines, _values, _facts, _opening)

"""What `build` shows before its first unit and after its last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from tokenmill.cli.display import Shown
from tokenmill.cli.tables import fact_lines
from tokenmill.cli.terminal import duration_text, unknown_facts
from tokenmill.core.values import counted, size_text
from tokenmill.run.tasks.encode import BuildReport, EncodeTask

if TYPE_CHECKING:
    from pathlib import Path

    from tokenmill.packing.planning import PlanReport
    from tokenmill.reports.contents import SubsetCounts
    from tokenmill.run.journal.ledger import Reused
    from tokenmill.store.manifest import Counts, Run
    from tokenmill.store.policies import Policies

SUBSET_NOTE = (
    "tokens/ holds both subsets. Plans leave validation out by default; other readers see it.",
    "To skip it there: each file in tokens/ has a table of the same name in documents/. Its",
    "rows are the documents in order, and its column `subset` is 'train' or 'validation'.",
)
STAGES = ("read", "encode", "split", "write", "fsync")


def summary_lines(report: BuildReport, startup: float) -> list[str]:
    """The summary of a build: the dataset, its counts, timings and bottleneck.

    `startup` is the time in seconds before the first unit: imports, workers, preparation.
    """
    manifest, run = report.manifest, report.run
    totals = manifest.totals
    lines = [""]
    if report.snapshot is None:
        lines.append("the build is finished: the dataset is complete")
        lines += fact_lines((("note", remark) for remark in report.remarks), 12)
    facts = [
        ("dataset", f"{report.out} (id {manifest.dataset_id})"),
        ("documents", f"{totals.documents:,} of {counted(totals.records, 'record')}"),
        ("tokens", f"{totals.tokens:,} in {counted(len(manifest.shards), 'shard')}"),
        *subset_facts(subsets_of(report)),
        ("rejected", reasons_text(totals, report.out)),
        ("empty", f"{totals.empty:,}"),
        ("special", f"{counted(totals.special_strings, 'special-token string')} in text"),
        *unknown_facts(totals.unknown_tokens, totals.tokens),
        ("encoded by", f"{run.engine}, {ids_text(run)}"),
    ]
    if report.snapshot is not None:
        fresh = report.snapshot.done_bytes - report.snapshot.resumed_bytes
        facts += [*reused_facts(report.reused), *time_facts(run.seconds, fresh, startup)]
        facts.append(("memory", memory_text(report.snapshot.peak_bytes, run)))
    lines += fact_lines(facts, 12)
    return lines + _plan_lines(report)


def next_line(out: str) -> str:
    """The suggestion after a build."""
    return f"next: tokenmill verify {out}   or   tokenmill inspect {out}"


def subsets_of(report: BuildReport) -> dict[str, SubsetCounts]:
    """Documents and tokens of each subset; none without a validation subset."""
    if report.opened is None or not report.opened.policies.read.validation:
        return {}
    from tokenmill.reports.contents import count_subsets

    return count_subsets(report.opened)


def subset_facts(subsets: dict[str, SubsetCounts]) -> list[tuple[str, str]]:
    """Names and values of the lines; empty if the dataset has no validation subset."""
    if not subsets:
        return []
    facts = [
        (name, f"{counted(counts.documents, 'document')}, {counted(counts.tokens, 'token')}")
        for name, counts in subsets.items()
    ]
    return [*facts, ("note", SUBSET_NOTE[0]), *(("", line) for line in SUBSET_NOTE[1:])]


def _plan_lines(report: BuildReport) -> list[str]:
    if not report.plans:
        return []
    from tokenmill.cli.plan_display import plan_lines

    return [line for plan in report.plans for line in ("", *plan_lines(plan, _place(report, plan)))]


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


def ids_text(run: Run) -> str:
    """How the ids of a dataset were checked."""
    if run.engine == "reference":
        return "the tokenizer's own library"
    return audited_text(run, "the reference")


def audited_text(run: Run, reference: str) -> str:
    """How many documents were compared with the reference, and what that may have missed."""
    audited = counted(run.audited_documents, "document")
    if run.audit is msgspec.UNSET:
        return f"checked by {reference} on {audited}: all equal; others may differ"
    if not (rate := run.audit.excluded_error_rate):
        return f"checked by {reference} on every document: all equal"
    missed = f"with 95 % confidence, fewer than {100 * rate:.2g} % of documents differ"
    return f"checked by {reference} on {audited}: all equal; {missed}"


def reasons_text(totals: Counts, out: str | Path) -> str:
    """Rejected records by reason, and the folder that lists them."""
    if not totals.rejected:
        return "0"
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in totals.rejected.items())
    return f"{totals.num_rejected:,} ({reasons}), in {out}/rejected"


def memory_text(peak_bytes: int, run: Run) -> str:
    """The peak memory of all processes, and how far it exceeds the budget of the last attempt."""
    text = f"{size_text(peak_bytes)} at most"
    budget = run.attempts[-1].memory_bytes if run.attempts else peak_bytes  # counts list none
    if peak_bytes <= budget:
        return text
    more = f"{size_text(peak_bytes - budget)} ({peak_bytes / budget - 1:.0%})"
    return (
        f"{text}, {more} more than the {size_text(budget)} of --memory, which is not a hard limit"
    )


def time_facts(
    spent: Mapping[str, float], fresh_bytes: int, startup: float
) -> Iterator[tuple[str, str]]:
    """The lines about time: `spent` holds seconds by stage, for `fresh_bytes` of input on disk."""
    wall = spent.get("wall", 0.0)
    rate = fresh_bytes / 1e6 / max(wall, 1e-9)
    yield "start-up", f"{startup:.1f} s"
    yield "time", f"{wall:.1f} s, {rate:,.0f} MB/s of input on disk"
    stages = {name: seconds for name, seconds in spent.items() if name in STAGES}
    if stages:
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
        "memory_bytes": run.attempts[-1].memory_bytes if run.attempts else None,
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


BUILD = Shown(facts=_facts, counted="tokens", writes=True, lines=summary_lines, values=_values)

"""What a build did, as it is shown at its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenmill.cli.quantities import counted, duration_text, size_text
from tokenmill.cli.subsets import subset_facts
from tokenmill.run.build import BuildReport

if TYPE_CHECKING:
    from tokenmill.report.contents import SubsetCounts
    from tokenmill.store.manifest import Run

STAGES = ("read", "encode", "write", "fsync")


def summary_lines(report: BuildReport, startup: float) -> list[str]:
    """What was done, where it is, how fast it went and what held it up.

    `startup` is the time in seconds before the first unit: libraries, workers, preparation.
    """
    totals, run = report.dataset.manifest.totals, report.run
    lines = [""]
    if report.snapshot is None:
        lines.append("nothing to do: the dataset is complete")
        lines += [f"{'note':>12}  {remark}" for remark in report.remarks]
    facts = [
        ("dataset", f"{report.dataset.folder} (id {report.dataset.manifest.dataset_id})"),
        ("documents", f"{totals.documents:,} of {counted(totals.records, 'record')}"),
        ("tokens", f"{totals.tokens:,} in {counted(len(report.dataset.shards), 'shard')}"),
        *subset_facts(subsets_of(report)),
        ("rejected", _reasons(report)),
        ("empty", f"{totals.empty:,}"),
        ("special", f"{counted(totals.special_strings, 'special-token string')} in text"),
        ("encoded by", f"{run.engine}, {_audited(report)}"),
    ]
    if report.snapshot is not None:
        fresh = report.snapshot.done_bytes - report.snapshot.resumed_bytes
        facts += [*_reused(report), *_times(run, fresh, startup)]
        facts.append(("memory", f"{size_text(report.snapshot.peak_bytes)} at most"))
    lines += [f"{name:>12}  {value}" for name, value in facts]
    lines += _plan_lines(report)
    out = report.dataset.folder
    lines += ["", f"next: tokenmill verify {out}   or   tokenmill inspect {out}"]
    return lines


def subsets_of(report: BuildReport) -> dict[str, SubsetCounts]:
    """Documents and tokens of each subset; none without a validation subset."""
    from tokenmill.report.contents import count_subsets

    return count_subsets(report.dataset)


def _plan_lines(report: BuildReport) -> list[str]:
    if not report.plans:
        return []
    from tokenmill.cli.plan_display import plan_lines

    return [line for plan in report.plans for line in ("", *plan_lines(plan))]


def plans_as_values(report: BuildReport) -> list[dict[str, object]]:
    """The plans of a build, for machines."""
    if not report.plans:
        return []
    from tokenmill.cli.plan_display import plan_values

    return [plan_values(plan) for plan in report.plans]


def _reused(report: BuildReport) -> list[tuple[str, str]]:
    if (found := report.reused) is None:
        return []
    spared = f"{counted(found.units, 'finished unit')}, {size_text(found.bytes)}"
    return [("reused", f"{spared}; saved about {duration_text(found.seconds)}")]


def _audited(report: BuildReport) -> str:
    if report.run.engine == "reference":
        return "whose ids are right by definition"
    audited = counted(report.run.audited_documents, "document")
    return f"checked by the reference on {audited}: all equal"


def _reasons(report: BuildReport) -> str:
    totals = report.dataset.manifest.totals
    if not totals.rejected:
        return "0"
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in totals.rejected.items())
    return f"{totals.num_rejected:,} ({reasons}), in {report.dataset.folder / 'rejected'}"


def _times(run: Run, fresh_bytes: int, startup: float) -> Iterator[tuple[str, str]]:
    wall = run.seconds.get("wall", 0.0)
    rate = fresh_bytes / 1e6 / max(wall, 1e-9)
    yield "start-up", f"{startup:.1f} s"
    yield "time", f"{wall:.1f} s, {rate:,.0f} MB/s of input on disk"
    stages = {name: seconds for name, seconds in run.seconds.items() if name in STAGES}
    if stages:
        slowest = max(stages, key=lambda name: stages[name])
        each = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in stages.items())
        yield "bottleneck", f"{slowest} ({each})"

"""What people read of the progress of a run: facts and rows, for terminals and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tokenmill.core.tables import Cell, Fact, Table, number, table_of
from tokenmill.core.values import counted, duration_text, size_text
from tokenmill.reports.status import AgentStatus, BuildStatus

STAGES = ("read", "encode", "write", "fsync", "audit")
LEAST_LEFT = 5.0
"""The least seconds for which it is worth knowing which unit ends last."""
LOW_DISK = 1.1
"""Less free space than this multiple of what is still to be written is a warning."""


def status_facts(status: BuildStatus) -> Iterator[Fact]:
    """Yield what is known of a run, as names and values."""
    if status.bytes_total:
        share = f"{status.bytes_done / status.bytes_total:.1%}"
        yield "done", f"{size_text(status.bytes_done)} of {size_text(status.bytes_total)}, {share}"
    if status.state == "complete":
        yield "dataset", status.dataset_id
    if status.kind == "export":
        if status.state == "complete":
            yield "rows", f"{status.documents:,}"
        yield "files", f"{status.units_done:,}"
    else:
        yield from _work(status)
    if status.rejected:
        yield "rejected", _rejected(status.rejected)
    if status.disk_bytes:
        yield "disk", _disk(status)
    if status.memory_bytes:
        yield "memory", size_text(status.memory_bytes)
    if spent := {name: status.stages[name] for name in STAGES if status.stages.get(name)}:
        total = sum(spent.values())
        shares = ", ".join(f"{name} {each / total:.0%}" for name, each in spent.items())
        yield "worker time", shares
    yield from _troubles(status)


def _work(status: BuildStatus) -> Iterator[Fact]:
    is_complete = status.state == "complete"
    if is_complete:
        yield "shards", f"{status.units_done:,}"
    if is_complete or status.documents:
        yield "documents", f"{status.documents:,}"
        yield "tokens", f"{status.tokens:,}"
    else:
        yield "documents", "none reported yet"
    if is_complete:
        return
    if status.eta_seconds is not None:
        yield "time left", duration_text(status.eta_seconds)
    taken_over = f", {status.items_taken_over:,} taken over" if status.items_taken_over else ""
    done = f"{status.units_done:,} done" if status.units_done else "none done yet"
    yield "units", f"{done}; {counted(status.items_claimed, 'item')} claimed{taken_over}"
    if (unit := status.last_unit) is not None and unit.left_seconds > LEAST_LEFT:
        ran, left = duration_text(unit.seconds), duration_text(unit.left_seconds)
        yield "ends last", f"unit {unit.key}: it has run for {ran}, {left} left"


def _rejected(rejected: dict[str, int]) -> str:
    reasons = "; ".join(f"{reason} {number:,}" for reason, number in rejected.items())
    return f"{counted(sum(rejected.values()), 'record')}: {reasons}"


def _disk(status: BuildStatus) -> str:
    parts = [f"{size_text(status.disk_bytes)} written"]
    if status.disk_bytes_at_end is not None:
        parts.append(f"about {size_text(status.disk_bytes_at_end)} at the end")
    if status.disk_bytes_free is not None:
        parts.append(f"{size_text(status.disk_bytes_free)} free")
        if (
            (status.disk_bytes_at_end or 0) - status.disk_bytes
        ) * LOW_DISK > status.disk_bytes_free:
            parts.append("the disk may become full")
    return ", ".join(parts)


def _troubles(status: BuildStatus) -> Iterator[Fact]:
    for failure in status.failures:
        first = failure.error.partition("\n")[0]
        yield "failed", f"{failure.item} on {counted(len(failure.agents), 'agent')}: {first}"
    for source, why in sorted(status.damaged.items()):
        yield "damaged", f"source {source}: {why}"


def agent_table(status: BuildStatus, most: int) -> Table:
    """The first `most` agents, those at work before the others."""
    columns: dict[str, Callable[[AgentStatus], Cell]] = {
        "agent": lambda agent: agent.agent,
        "host": lambda agent: agent.host,
        "state": _agent_state,
        "workers": lambda agent: number(agent.workers),
        "speed": lambda agent: (
            f"{size_text(agent.bytes_per_second)}/s" if agent.bytes_per_second else "-"
        ),
        "tokens": lambda agent: number(agent.tokens),
        "items": lambda agent: "-" if agent.state == "left" else number(len(agent.items)),
    }
    order = ("at work", "silent", "left")
    agents = sorted(status.agents, key=lambda agent: (order.index(agent.state), agent.agent))
    return table_of(columns, agents[:most])


def _agent_state(agent: AgentStatus) -> str:
    if agent.is_straggler:
        return "slow"
    if agent.state == "left":
        return f"left: {agent.why[:40]}"
    is_silent = agent.state == "silent"
    return f"silent for {duration_text(agent.said_seconds_ago)}" if is_silent else agent.state

"""tokenmill status"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.parser import Command
from tokenmill.cli.tables import print_facts, print_json, print_table
from tokenmill.core.options import about
from tokenmill.core.values import counted, duration_text, size_text

if TYPE_CHECKING:
    from tokenmill.reports.status import AgentStatus, BuildStatus

MAX_SHOWN = 200
"""Most agents shown in the table; --json lists all."""


class Status(Command, kw_only=True):
    """Print the progress of a build."""

    usage: ClassVar[str] = "OUT [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill status corpus/
  tokenmill status s3://bucket/corpus --json"""

    out: Annotated[
        str,
        about("the --out of the build: folder or bucket prefix", positional="OUT"),
    ]
    json: Annotated[bool, about("everything as JSON on stdout")] = False

    def run(self) -> None:
        from tokenmill.reports.status import build_status

        status = build_status(self.out)
        if self.json:
            print_json(status)
            return
        print_facts(list(_facts(status)))
        if status.agents:
            print()
            order = ("at work", "silent", "left")
            agents = sorted(status.agents, key=lambda each: (order.index(each.state), each.agent))
            print_table(
                ("agent", "host", "state", "workers", "speed", "tokens", "items"),
                [_row(agent) for agent in agents[:MAX_SHOWN]],
            )


def _facts(status: BuildStatus) -> Iterator[tuple[str, str]]:
    yield "build", f"{status.out}: {status.state}"
    if status.state == "complete":
        yield "dataset", status.dataset_id
        yield "shards", f"{status.units_done:,}"
    if status.state == "under way" and not status.documents:
        yield "documents", "none reported yet; agents report every 20 seconds"
    else:
        yield "documents", f"{status.documents:,}"
        yield "tokens", f"{status.tokens:,}"
    if status.state != "under way":
        return
    if status.bytes_total:
        share = f"{status.bytes_done / status.bytes_total:.1%}"
        yield "done", f"{size_text(status.bytes_done)} of {size_text(status.bytes_total)}, {share}"
    if status.eta_seconds is not None:
        yield "time left", duration_text(status.eta_seconds)
    taken_over = f", {status.items_taken_over:,} taken over" if status.items_taken_over else ""
    done = f"{status.units_done:,} done" if status.units_done else "none done yet"
    yield "units", f"{done}; {counted(status.items_claimed, 'item')} claimed{taken_over}"
    for failure in status.failures:
        first = failure.error.partition("\n")[0]
        yield "failed", f"{failure.item} on {counted(len(failure.agents), 'agent')}: {first}"
    for source, why in sorted(status.damaged.items()):
        yield "damaged", f"source {source}: {why}"


def _row(agent: AgentStatus) -> tuple[str, ...]:
    state = agent.state
    if agent.is_straggler:
        state = "slow"
    elif agent.state == "left":
        state = f"left: {agent.why[:40]}"
    elif agent.state == "silent":
        state = f"silent for {duration_text(agent.said_seconds_ago)}"
    speed = f"{size_text(agent.bytes_per_second)}/s" if agent.bytes_per_second else "-"
    held = str(len(agent.items)) if agent.state != "left" else "-"
    return agent.agent, agent.host, state, str(agent.workers), speed, f"{agent.tokens:,}", held

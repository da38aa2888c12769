"""The progress of a build and its agents, from the files in `work/` of the output.

Everything there is read with care: it is a hint of processes that may have been killed, or of
others than tokenmill's. What cannot be read counts as not said.
"""

from __future__ import annotations

import re
import statistics
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.run.agreement import read_job
from tokenmill.run.journal.agents import AgentState, is_agent, place_of, states
from tokenmill.run.journal.claims import CLAIMS, failed_agents, noted_failure
from tokenmill.run.journal.ledger import DAMAGED, finished_keys
from tokenmill.run.publish import stored_manifest
from tokenmill.run.workspace import JOB_NAME
from tokenmill.store.manifest import MANIFEST_NAME
from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.objects.opening import open_store

SILENT_SECONDS = 60.0
STRAGGLER = 0.5
"""An agent with less than this share of the median speed is shown as slow."""
_DAMAGE = re.compile(DAMAGED + r"/(\d{8})\.json")


@dataclass(frozen=True, slots=True)
class AgentStatus:
    """An agent, from its start to its end."""

    agent: str
    place: str
    host: str
    state: str
    """"at work", "silent" or "left"."""
    why: str
    """Why the agent left."""
    said_seconds_ago: float
    """Seconds since its last message. The clocks of two machines can differ."""
    workers: int
    documents: int
    tokens: int
    bytes_done: int
    bytes_per_second: float
    items: list[str]
    is_straggler: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """An item that failed on agents. After two agents it is not tried again."""

    item: str
    agents: list[str]
    error: str


@dataclass(frozen=True, slots=True)
class BuildStatus:
    """The progress of a build."""

    out: str
    state: str
    """"complete" or "under way"."""
    dataset_id: str = ""
    documents: int = 0
    tokens: int = 0
    units_done: int = 0
    items_claimed: int = 0
    items_taken_over: int = 0
    """Items claimed again after their first agent."""
    bytes_done: int = 0
    bytes_total: int = 0
    eta_seconds: float | None = None
    agents: list[AgentStatus] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    damaged: dict[int, str] = field(default_factory=dict)
    """Damaged sources: reasons by source index."""


def build_status(out: str | Path) -> BuildStatus:
    """Return the progress of the build in a folder or bucket prefix.

    Raises:
        UserError: no build was started there.
        StorageError: the store cannot be read.
        VerificationError: the manifest of a complete dataset, or the start of a build, is damaged.
    """
    store = open_store(str(out))
    if store.size(MANIFEST_NAME) is not None:
        manifest = stored_manifest(store)
        return BuildStatus(
            out=store.location,
            state="complete",
            dataset_id=manifest.dataset_id,
            documents=manifest.totals.documents,
            tokens=manifest.totals.tokens,
            units_done=len(manifest.shards),
        )
    if (job := store.read(JOB_NAME)) is None:
        hint = "give the --out of a build; tokenmill build starts one"
        raise UserError("found no build", where=store.location, hint=hint)
    read_job(job, f"{store.location}/{JOB_NAME}")
    return _under_way(store)


def _under_way(store: ObjectStore) -> BuildStatus:
    said = states(store)
    agents = _with_stragglers([_agent(state) for state in said if is_agent(state.agent)])
    done = sum(state.tallies.bytes_done for state in said)
    total = max((state.tallies.bytes_total for state in said), default=0)
    speed = sum(agent.bytes_per_second for agent in agents if agent.state == "at work")
    claims = store.sizes(CLAIMS)
    first = sum(name.endswith(".0") for name in claims)
    return BuildStatus(
        out=store.location,
        state="under way",
        documents=sum(agent.documents for agent in agents),
        tokens=sum(agent.tokens for agent in agents),
        units_done=len(finished_keys(store)),
        items_claimed=first,
        items_taken_over=len(claims) - first,
        bytes_done=min(done, total),
        bytes_total=total,
        eta_seconds=max(total - done, 0) / speed if speed and total else None,
        agents=agents,
        failures=_failures(store),
        damaged=_damaged(store),
    )


def _agent(state: AgentState) -> AgentStatus:
    age = max(time.time() - state.clock, 0.0)
    silent = "silent" if age > SILENT_SECONDS else "at work"
    return AgentStatus(
        agent=state.agent,
        place=place_of(state.agent),
        host=state.host,
        state="left" if state.left else silent,
        why=state.left,
        said_seconds_ago=round(age, 1),
        workers=state.workers,
        documents=state.tallies.documents,
        tokens=state.tallies.tokens,
        bytes_done=state.tallies.bytes_done,
        bytes_per_second=state.tallies.bytes_done / state.seconds if state.seconds else 0.0,
        items=list(state.tallies.items),
    )


def _with_stragglers(agents: list[AgentStatus]) -> list[AgentStatus]:
    speeds = [agent.bytes_per_second for agent in agents if agent.state == "at work"]
    least = STRAGGLER * statistics.median(speeds) if len(speeds) > 2 else 0.0
    return [
        replace(agent, is_straggler=agent.state == "at work" and agent.bytes_per_second < least)
        for agent in agents
    ]


def _failures(store: ObjectStore) -> list[Failure]:
    found = failed_agents(store, lambda agent: False)
    return [
        Failure(item, sorted(agents), str(noted_failure(store, item, min(agents))))
        for item, agents in sorted(found.items())
    ]


class _Damage(msgspec.Struct):
    why: str


def _damaged(store: ObjectStore) -> dict[int, str]:
    found: dict[int, str] = {}
    for name, data in store.read_all(store.sizes(DAMAGED)):
        if match := _DAMAGE.fullmatch(name):
            try:
                found[int(match[1])] = msgspec.json.decode(data or b"", type=_Damage).why
            except (ValueError, RecursionError):
                found[int(match[1])] = "its note cannot be read"
    return found

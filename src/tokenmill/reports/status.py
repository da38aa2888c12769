"""The progress of builds and exports, from the files that they write while they run.

Everything there is read with care: it is a hint of processes that may have been killed, or of
others than tokenmill's. What cannot be read counts as not said.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import statistics
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.load.export.folder import PROGRESS_NAME, Progress, export_at
from tokenmill.run.agreement import read_job
from tokenmill.run.journal.agents import AgentState, is_agent, place_of, states
from tokenmill.run.journal.claims import CLAIMS, failed_agents, noted_failure
from tokenmill.run.journal.ledger import DAMAGED, finished_keys
from tokenmill.run.progress import RunningUnit
from tokenmill.run.publish import stored_manifest
from tokenmill.run.workspace import JOB_NAME
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.exports import EXPORT_NAME, DocumentsManifest
from tokenmill.store.files import unfinished_beside
from tokenmill.store.manifest import MANIFEST_NAME
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.objects.opening import open_store

NO_BUILD = "found no build"
MISSED_BEATS = 3
"""An agent is silent after so many heartbeats that did not come, and at least `LEAST_SILENCE`."""
MOST_AHEAD = 86_400.0
"""Seconds that the clock of another machine may be ahead; what claims to be later is not read."""
LEAST_SILENCE = 10.0
STRAGGLER = 0.5
"""An agent with less than this share of the median speed is shown as slow."""
MAX_PROGRESS_BYTES = 1 << 16
N = TypeVar("N", int, float)
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
    """The progress of a build or an export."""

    out: str
    state: str
    """"complete" or "under way"."""
    kind: str = "build"
    """"build" or "export"."""
    stage: str = "complete"
    """"starting", "encoding", "finishing", "silent" or "stopped"; the stages of an export."""
    dataset_id: str = ""
    documents: int = 0
    """Documents of a build; rows, or documents, of a complete export."""
    tokens: int = 0
    units_done: int = 0
    """Finished units of a build, files of an export."""
    items_claimed: int = 0
    items_taken_over: int = 0
    """Items claimed again after their first agent."""
    bytes_done: int = 0
    bytes_total: int = 0
    eta_seconds: float | None = None
    rejected: dict[str, int] = field(default_factory=dict)
    """Rejected records by reason."""
    disk_bytes: int = 0
    """Bytes of finished files."""
    disk_bytes_at_end: int | None = None
    """A forecast. None if nothing is finished yet."""
    disk_bytes_free: int | None = None
    """None for buckets."""
    memory_bytes: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds of all workers by stage, in finished units."""
    last_unit: RunningUnit | None = None
    """The running unit that will end last."""
    agents: list[AgentStatus] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    damaged: dict[int, str] = field(default_factory=dict)
    """Damaged sources: reasons by source index."""
    attempt: str = ""
    """The process that began or resumed the work alone. "" if there is none."""
    said_at: float = 0.0
    """When the last report was made, in seconds since 1970 by the clock of its machine."""


def run_status(out: str | Path) -> BuildStatus:
    """Return the progress of the build or export in a folder, or of the build in a bucket prefix.

    Of a run that replaces an older output, the progress of the new one.

    Raises:
        UserError: nothing was started there.
        StorageError: the store cannot be read.
        VerificationError: the manifest of a complete output, or the start of a build, is damaged.
    """
    if not is_remote(str(out)):
        beside = unfinished_beside(Path(out).resolve())
        if (beside / "begun.json").is_file():
            return _export_under_way(Path(out), beside)
        if (beside / "new" / JOB_NAME).is_file():
            return replace(_under_way(FolderStore(beside / "new")), out=str(out))
        if (Path(out) / EXPORT_NAME).is_file():
            return _export_complete(Path(out))
    return build_status(out)


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
            rejected=manifest.totals.rejected,
            disk_bytes=sum(file.bytes for shard in manifest.shards for file in shard.files),
        )
    if (job := store.read(JOB_NAME)) is None:
        hint = "give the --out of a build or export; tokenmill build starts one"
        raise UserError(NO_BUILD, where=store.location, hint=hint)
    read_job(job, f"{store.location}/{JOB_NAME}")
    return _under_way(store)


def _under_way(store: ObjectStore) -> BuildStatus:
    latest = time.time() + MOST_AHEAD
    found = (state for state in states(store) if is_agent(state.agent))
    said = [state for state in found if state.clock < latest]
    begun_alone = max((state for state in said if state.tallies.alone), key=_started, default=None)
    first = _started(begun_alone) if begun_alone else 0.0
    since = [state for state in said if _started(state) >= first]
    tallies = [state.tallies for state in since]
    agents = _with_stragglers([_agent(state, is_past=_started(state) < first) for state in said])
    at_work = {agent.agent for agent in agents if agent.state == "at work"}
    working = [state.tallies for state in said if state.agent in at_work]
    units = [each.last_unit for each in working if each.last_unit is not None]
    total = max((each.bytes_total for each in tallies), default=0)
    done = min(sum(each.bytes_done for each in tallies), total)
    speed = sum(agent.bytes_per_second for agent in agents if agent.agent in at_work)
    finished = sum(each.finished_bytes for each in tallies)
    disk = sum(each.disk_bytes for each in tallies)
    claims = store.sizes(CLAIMS)
    num_first = sum(name.endswith(".0") for name in claims)
    is_local = isinstance(store, FolderStore)
    return BuildStatus(
        out=store.location,
        state="under way",
        stage=_stage(since, at_work, done=done),
        documents=sum(each.documents for each in tallies),
        tokens=sum(each.tokens for each in tallies),
        units_done=len(finished_keys(store)),
        items_claimed=num_first,
        items_taken_over=len(claims) - num_first,
        bytes_done=done,
        bytes_total=total,
        eta_seconds=(total - done) / speed if speed and total else None,
        rejected=_added(each.rejected for each in tallies),
        disk_bytes=disk,
        disk_bytes_at_end=round(disk * total / finished) if finished and disk else None,
        disk_bytes_free=shutil.disk_usage(store.location).free if is_local else None,
        memory_bytes=sum(each.memory_bytes for each in working),
        stages=_added(each.stages for each in tallies),
        last_unit=max(units, key=lambda unit: unit.left_seconds, default=None),
        agents=agents,
        failures=_failures(store),
        damaged=_damaged(store),
        attempt=begun_alone.agent if begun_alone else "",
        said_at=max((state.clock for state in said), default=0.0),
    )


def _started(state: AgentState) -> float:
    return state.clock - state.seconds


def _stage(said: Sequence[AgentState], at_work: Collection[str], *, done: int) -> str:
    """Return what a build that is not complete does."""
    if at_work or not said:
        return "encoding" if done else "starting"
    if all(state.left == "done" for state in said):
        return "finishing"
    return "stopped" if all(state.left for state in said) else "silent"


def _added(counts: Iterable[Mapping[str, N]]) -> dict[str, N]:
    """Add up counts by name, the largest first."""
    total: dict[str, N] = {}
    for name, number in (item for each in counts for item in each.items()):
        total[name] = total[name] + number if name in total else number
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def _export_under_way(out: Path, folder: Path) -> BuildStatus:
    said, store = Progress("starting", 0, 0, 0.0), FolderStore(folder)
    errors = contextlib.suppress(OSError, ValueError, RecursionError)
    with errors, open(folder / PROGRESS_NAME, "rb") as file:
        said = msgspec.json.decode(file.read(MAX_PROGRESS_BYTES), type=Progress)
    is_silent = said.clock and time.time() - said.clock > LEAST_SILENCE
    return BuildStatus(
        out=str(out),
        state="under way",
        kind="export",
        stage="silent" if is_silent else said.stage,
        units_done=len(store.sizes("receipts")),
        bytes_done=min(said.done, said.total),
        bytes_total=said.total,
        disk_bytes=sum(store.sizes("rows").values()),
        disk_bytes_free=shutil.disk_usage(folder).free,
        attempt=said.stage,
        said_at=said.clock,
    )


def _export_complete(out: Path) -> BuildStatus:
    manifest = export_at(out)
    documents = (
        manifest.num_documents
        if isinstance(manifest, DocumentsManifest)
        else manifest.num_sequences
    )
    return BuildStatus(
        out=str(out),
        state="complete",
        kind="export",
        dataset_id=manifest.dataset_id,
        documents=documents,
        units_done=len(manifest.files),
        disk_bytes=sum(file.bytes for file in manifest.files),
    )


def _agent(state: AgentState, *, is_past: bool) -> AgentStatus:
    age = max(time.time() - state.clock, 0.0)
    is_silent = age > max(MISSED_BEATS * state.beat_seconds, LEAST_SILENCE)
    done = max(state.tallies.bytes_done - state.tallies.resumed_bytes, 0)
    left = state.left or ("it was killed, or its machine failed" if is_past else "")
    return AgentStatus(
        agent=state.agent,
        place=place_of(state.agent),
        host=state.host,
        state="left" if left else "silent" if is_silent else "at work",
        why=left,
        said_seconds_ago=round(age, 1),
        workers=state.workers,
        documents=state.tallies.documents,
        tokens=state.tallies.tokens,
        bytes_done=done,
        bytes_per_second=done / state.seconds if state.seconds else 0.0,
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

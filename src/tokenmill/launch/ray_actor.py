"""One agent of a build in an actor of Ray: what it is asked, what it answers."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

import msgspec

from tokenmill.error_records import ErrorRecord
from tokenmill.errors import TokenmillError, UserError
from tokenmill.run.agents.shard import Shard
from tokenmill.run.build import build
from tokenmill.run.build_report import Departure
from tokenmill.run.commit.identity import versions
from tokenmill.run.commit.workspace import JOB_NAME
from tokenmill.run.events import RunEvents
from tokenmill.run.local.messages import failure
from tokenmill.run.progress import Snapshot
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.start.agreement import JOB_VARIABLE
from tokenmill.run.start.preparation import Preparation
from tokenmill.store.objects.opening import open_store

GAUGES = {
    "documents": "documents that an agent has encoded",
    "tokens": "tokens that an agent has written",
    "read_bytes": "record bytes that an agent has read",
}
"""Fields of a `Snapshot` that are metrics of Ray, and what they are."""


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """Who an agent is, before it has any work."""

    host: str
    versions: dict[str, str]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent is to do; the same after a restart."""

    recipe: Recipe
    index: int
    num_agents: int
    folder: str
    """Where relative names begin."""
    job: str = ""
    """The job to join; "" for the first agent, which may begin one."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """How far an agent is."""

    job: str = ""
    """"" until there is one."""
    resumed_bytes: int = 0
    """Input bytes on disk that were done when it began."""
    done_bytes: int = 0
    """Those that it has done itself."""
    total_bytes: int = 0
    tokens: int = 0
    """Tokens that it has written itself."""


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent ended."""

    dataset_id: str = ""
    """"" where others are still at work, or after an error."""
    documents: int = 0
    tokens: int = 0
    shards: int = 0
    error: ErrorRecord | None = None


class AgentActor:
    """Runs one agent. All that passes through Ray is JSON of a few kilobytes.

    `run` takes as long as the build; `condition` is answered meanwhile, by another thread. The
    signals of the process are Ray's.
    """

    def __init__(self) -> None:
        self._out = self._job = ""
        self._condition = Condition()

    def greet(self) -> bytes:
        """A `Greeting`."""
        return msgspec.json.encode(Greeting(host=socket.gethostname(), versions=versions()))

    def run(self, order: bytes) -> bytes:
        """Carry out an `Order`; returns a `Leaving`, also for errors."""
        asked = msgspec.json.decode(order, type=Order)
        try:
            _enter(asked)
            self._out = asked.recipe.out
            leaving = self._build(asked)
        except Exception as error:
            leaving = Leaving(error=failure("", error, None).error)
            print(f"tokenmill: {error}", flush=True)
        return msgspec.json.encode(leaving)

    def condition(self) -> bytes:
        """A `Condition`."""
        if self._out and not self._job:
            self._job = _job_at(self._out)
        return msgspec.json.encode(msgspec.structs.replace(self._condition, job=self._job))

    def _build(self, asked: Order) -> Leaving:
        measure = _measure(asked.recipe.out, asked.index)
        first: list[Snapshot] = []

        def on_engine(engine: str, remark: str) -> None:
            print(f"engine {engine} {remark}", flush=True)

        def on_progress(snapshot: Snapshot) -> None:
            first[:] = first or [snapshot]
            self._condition = Condition(
                resumed_bytes=snapshot.resumed_bytes,
                done_bytes=snapshot.done_bytes - snapshot.resumed_bytes,
                total_bytes=snapshot.total_bytes,
                tokens=snapshot.tokens - first[0].tokens,
            )
            measure(first[0], snapshot)

        print(f"agent {asked.index} of {asked.num_agents}: {asked.recipe.out}", flush=True)
        events = RunEvents[Preparation](on_engine=on_engine, on_progress=on_progress)
        shard = Shard(asked.index, asked.num_agents)
        report = build(asked.recipe, shard=shard, events=events)
        if isinstance(report, Departure):
            return Leaving()
        manifest = report.manifest
        return Leaving(
            dataset_id=manifest.dataset_id,
            documents=manifest.totals.documents,
            tokens=manifest.totals.tokens,
            shards=len(manifest.shards),
        )


def _enter(asked: Order) -> None:
    """Be in the folder, and have the variable, that an agent's command line would have."""
    try:
        os.chdir(asked.folder)
    except OSError as error:
        raise UserError(
            "a node does not have the folder in which the build was started",
            where=f"{asked.folder} on {socket.gethostname()}",
            why=str(error),
            hint="start the build in a folder that all nodes share",
        ) from error
    os.environ.pop(JOB_VARIABLE, None)
    if asked.job:
        os.environ[JOB_VARIABLE] = asked.job


class _Job(msgspec.Struct):
    job: str = ""


def _job_at(out: str) -> str:
    """The name of the job that was begun at an output; "" if there is none yet."""
    with contextlib.suppress(TokenmillError, msgspec.MsgspecError):
        if data := open_store(out).read(JOB_NAME):
            return msgspec.json.decode(data, type=_Job).job
    return ""


def _measure(out: str, index: int) -> Callable[[Snapshot, Snapshot], None]:
    """What keeps the metrics of this agent: what was done since a first moment."""
    from ray.util.metrics import Gauge

    tags = {"out": out, "agent": str(index)}
    gauges = {
        field: Gauge(f"tokenmill_{field}", description, tag_keys=tuple(tags))
        for field, description in GAUGES.items()
    }

    def measure(first: Snapshot, now: Snapshot) -> None:
        for field, gauge in gauges.items():
            gauge.set(getattr(now, field) - getattr(first, field), tags)

    return measure

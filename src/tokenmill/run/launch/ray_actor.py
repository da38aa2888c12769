"""One agent of a build in a Ray actor, and the messages that it exchanges with the driver."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

import msgspec

from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import TokenmillError, UserError
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
"""Fields of a `Snapshot` that are reported as Ray metrics, with their descriptions."""


class Greeting(msgspec.Struct, frozen=True, kw_only=True):
    """An agent's host and versions, sent before it gets work."""

    host: str
    versions: dict[str, str]


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The work of an agent, which stays the same after a restart."""

    recipe: Recipe
    index: int
    num_agents: int
    folder: str
    """The folder of relative paths."""
    job: str = ""
    """The job to join. "" for the first agent, which may start one."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an agent."""

    job: str = ""
    """The agent's job. "" if there is none yet."""
    resumed_bytes: int = 0
    """Input bytes on disk that were finished when the agent started."""
    done_bytes: int = 0
    """Input bytes on disk that this agent has finished."""
    total_bytes: int = 0
    tokens: int = 0
    """Tokens that this agent has written."""


class Leaving(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent ended."""

    dataset_id: str = ""
    """The id of the dataset. "" if other agents are still working, or after an error."""
    documents: int = 0
    tokens: int = 0
    shards: int = 0
    error: ErrorRecord | None = None


class AgentActor:
    """Runs one agent. Only a few kilobytes of JSON pass through Ray.

    `run` takes as long as the build. Meanwhile, another thread answers `condition`. Ray handles the
    signals of the process.
    """

    def __init__(self) -> None:
        self._out = self._job = ""
        self._condition = Condition()

    def greet(self) -> bytes:
        """Return a `Greeting`."""
        return msgspec.json.encode(Greeting(host=socket.gethostname(), versions=versions()))

    def run(self, order: bytes) -> bytes:
        """Execute an `Order`, and return a `Leaving`, which also reports errors."""
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
        """Return a `Condition`."""
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
    """Set the current folder and the environment variable of an agent."""
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
    """Return the job of an output. "" if there is none yet."""
    with contextlib.suppress(TokenmillError, msgspec.MsgspecError):
        if data := open_store(out).read(JOB_NAME):
            return msgspec.json.decode(data, type=_Job).job
    return ""


def _measure(out: str, index: int) -> Callable[[Snapshot, Snapshot], None]:
    """Return a function that updates this agent's metrics, given the first and current progress."""
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

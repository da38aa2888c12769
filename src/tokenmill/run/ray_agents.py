"""Agents in Ray actors: what they do, and how the driver starts, asks and ends them."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import TokenmillError, UserError
from tokenmill.run.agreement import JOB_VARIABLE
from tokenmill.run.identity import versions
from tokenmill.run.messages import failure
from tokenmill.run.pipeline import BuildEvents, build
from tokenmill.run.progress import Snapshot
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.shares import Share
from tokenmill.run.task import Departure
from tokenmill.run.workspace import JOB_NAME
from tokenmill.store.objects.opening import open_store

START_SECONDS = 120.0
"""How long to wait for an agent to start. After that, something else holds the node's CPUs."""
ANSWER_SECONDS = 5.0
MAX_RESTARTS = 20
"""How often Ray restarts an agent on its node, so that an agent that always dies ends."""
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


Answer = TypeVar("Answer", Condition, Greeting, Leaving)


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
            leaving = Leaving(error=failure("", error).error)
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
        events = BuildEvents(on_engine=on_engine, on_progress=on_progress)
        share = Share(asked.index, asked.num_agents)
        report = build(asked.recipe, share=share, events=events)
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
        for name, gauge in gauges.items():
            gauge.set(getattr(now, name) - getattr(first, name), tags)

    return measure


@dataclass(frozen=True, slots=True)
class Node:
    """A live node."""

    id: str
    address: str
    cpus: float
    """All CPUs of the node, free or not."""


@dataclass(slots=True, eq=False)
class RayAgent:
    """An actor on a node, which greets, gets work, and leaves."""

    index: int
    node: Node
    cpus: float
    actor: Any
    greeting: Any
    """Ray's reference to a `Greeting`. None once it was read."""
    deadline: float
    leaving: Any = None
    """Ray's reference to a `Leaving`. None before the agent gets work."""
    condition: Condition = field(default_factory=Condition)
    """Its last known progress."""


class Fleet:
    """All agents that this process has started."""

    def __init__(self, out: str) -> None:
        self._name = re.sub(r"\W+", "-", out.rstrip("/").rpartition("/")[2])
        self.seen: list[RayAgent] = []
        """All agents, including those that are gone."""
        self.agents: dict[int, RayAgent] = {}
        """The present agents, by index."""

    @property
    def arriving(self) -> list[RayAgent]:
        """Agents that have not greeted yet."""
        return [agent for agent in self.agents.values() if agent.greeting is not None]

    @property
    def working(self) -> list[RayAgent]:
        """Agents that have work."""
        return [agent for agent in self.agents.values() if agent.leaving is not None]

    @property
    def idle(self) -> list[RayAgent]:
        """Agents that have greeted but have no work."""
        here = self.agents.values()
        return [agent for agent in here if agent.greeting is None and agent.leaving is None]

    def nodes(self) -> list[Node]:
        """Return live nodes with at least one CPU, sorted by id."""
        import ray

        nodes = [
            Node(node["NodeID"], node["NodeManagerAddress"], node["Resources"].get("CPU", 0.0))
            for node in ray.nodes()
            if node["Alive"]
        ]
        return sorted((node for node in nodes if node.cpus >= 1), key=lambda node: node.id)

    def free_cpus(self) -> float:
        """Return the number of free CPUs of all nodes."""
        import ray

        return float(ray.available_resources().get("CPU", 0.0))

    def hire(self, index: int, node: Node, cpus: float) -> None:
        """Ask Ray for an actor on a node, which may never start."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = (
            ray.remote(AgentActor)
            .options(
                name=f"tokenmill-{self._name}-{index:05d}-{len(self.seen)}",
                num_cpus=cpus,
                max_concurrency=2,  # `condition` is answered while `run` runs
                max_restarts=MAX_RESTARTS,
                max_task_retries=-1,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
            )
            .remote()
        )
        deadline = time.monotonic() + START_SECONDS
        self.agents[index] = RayAgent(
            index, node, cpus, actor, actor.greet.options(max_task_retries=0).remote(), deadline
        )
        self.seen.append(self.agents[index])

    def greetings(self, seconds: float) -> Iterator[tuple[RayAgent, Greeting | str]]:
        """Yield agents that have started, and the reason for those that did not start in time."""
        import ray
        from ray.exceptions import RayError

        awaited = {agent.greeting: agent for agent in self.arriving}
        ready = _ready([*awaited], seconds)
        for reference, agent in awaited.items():
            if reference in ready:
                agent.greeting = None
                try:
                    yield agent, msgspec.json.decode(ray.get(reference), type=Greeting)
                except RayError as error:
                    yield agent, str(error).strip().rpartition("\n")[2]
            elif time.monotonic() > agent.deadline:
                agent.greeting = None
                yield agent, f"no answer within {START_SECONDS:.0f} s"

    def employ(self, agent: RayAgent, order: bytes) -> None:
        """Give work to an agent."""
        agent.leaving = agent.actor.run.remote(order)

    def leavings(self, seconds: float) -> Iterator[tuple[RayAgent, Leaving | None]]:
        """Yield agents that have ended, with None for agents that were lost with their node."""
        awaited = {agent.leaving: agent for agent in self.working}
        for reference in _ready([*awaited], seconds):
            yield awaited[reference], _answer(reference, Leaving)

    def look(self) -> None:
        """Update the progress of all working agents. Slow agents keep their last known progress."""
        asked = {
            agent.actor.condition.options(max_task_retries=0).remote(): agent
            for agent in self.working
        }
        for reference in _ready([*asked], ANSWER_SECONDS, wait_for_all=True):
            if found := _answer(reference, Condition):
                asked[reference].condition = found

    def forget(self, agent: RayAgent) -> None:
        """Remove an agent that has ended, and free its CPUs."""
        import ray

        del self.agents[agent.index]
        ray.kill(agent.actor)

    def dismiss_all(self) -> None:
        """End all agents at once. Other agents or a resumed build repeat uncommitted work."""
        for agent in list(self.agents.values()):
            self.forget(agent)


def _ready(references: Sequence[Any], seconds: float, *, wait_for_all: bool = False) -> list[Any]:
    """Wait until one reference is ready, or all, and return the ready ones."""
    if not references:
        time.sleep(seconds)
        return []
    import ray

    wanted = len(references) if wait_for_all else 1
    found, others = ray.wait(list(references), num_returns=wanted, timeout=seconds)
    if others:
        found += ray.wait(others, num_returns=len(others), timeout=0)[0]
    return list(found)


def _answer(reference: Any, kind: type[Answer]) -> Answer | None:
    """Return the answer of an agent, or None if the agent is gone.

    Raises:
        RayTaskError: the agent has a bug.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return msgspec.json.decode(ray.get(reference), type=kind)
    except RayTaskError:
        raise
    except RayError:
        return None

"""Agents in Ray actors: what they do, and how the driver starts, asks and ends them."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import UserError
from tokenmill.run.agreement import JOB_VARIABLE
from tokenmill.run.executor import failure
from tokenmill.run.job import versions
from tokenmill.run.launch import AgentShare
from tokenmill.run.pipeline import BuildEvents, begin, build
from tokenmill.run.progress import Snapshot
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.task import Departure

START_SECONDS = 120.0
"""How long to wait for an agent to start. After that, something else holds the node's CPUs."""
ANSWER_SECONDS = 5.0
MAX_RESTARTS = 20
"""How often Ray restarts an agent on its node, so that an agent that always dies ends."""

Greeting = tuple[str, dict[str, str]]
"""An agent's host and versions. It is read before all machines are known to have one version."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The work of an agent, which stays the same after a restart."""

    recipe: Recipe
    index: int
    num_agents: int
    folder: str
    """The folder of relative paths."""
    job: str = ""
    """The job to join. "" to start one."""


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of an agent."""

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


@dataclass(frozen=True, slots=True)
class Lost:
    """An agent that did not start, or was lost with its node."""

    why: str


Answer = Greeting | str | Leaving | Lost
"""What the driver hears of an agent: its greeting, the job that it has started, or its end."""


class AgentActor:
    """Runs one agent. Only a few kilobytes pass through Ray.

    `run` takes as long as the build. Meanwhile, another thread answers `condition`. Ray handles the
    signals of the process.
    """

    def __init__(self) -> None:
        self._condition = Condition()

    def greet(self) -> Greeting:
        """Return the host and the versions of this machine."""
        return socket.gethostname(), versions()

    def run(self, order: Order) -> str | Leaving:
        """Start a job and return its name, or work for a job until its end."""
        try:
            _enter(order)
            if not order.job and (job := begin(order.recipe)):
                return job
            return self._build(order)
        except Exception as error:
            print(f"tokenmill: {error}", flush=True)
            return Leaving(error=failure("", error).error)

    def condition(self) -> Condition:
        """Return the progress of `run`."""
        return self._condition

    def _build(self, order: Order) -> Leaving:
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

        print(f"agent {order.index} of {order.num_agents}: {order.recipe.out}", flush=True)
        events = BuildEvents(on_engine=on_engine, on_progress=on_progress)
        share = AgentShare(order.index, order.num_agents)
        report = build(order.recipe, share=share, events=events)
        if isinstance(report, Departure):
            return Leaving()
        manifest = report.manifest
        return Leaving(
            dataset_id=manifest.dataset_id,
            documents=manifest.totals.documents,
            tokens=manifest.totals.tokens,
            shards=len(manifest.shards),
        )


def _enter(order: Order) -> None:
    """Set the current folder and the environment variable of an agent."""
    try:
        os.chdir(order.folder)
    except OSError as error:
        raise UserError(
            "a node does not have the folder in which the build was started",
            where=f"{order.folder} on {socket.gethostname()}",
            why=str(error),
            hint="start the build in a folder that all nodes share",
        ) from error
    os.environ.pop(JOB_VARIABLE, None)
    if order.job:
        os.environ[JOB_VARIABLE] = order.job


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
    answer: Any
    """Ray's reference to what the agent will answer next. None if it has nothing to do."""
    deadline: float
    """When it must have greeted."""
    has_greeted: bool = False
    condition: Condition = field(default_factory=Condition)
    """Its last known progress."""


class RayAgents:
    """All agents that this process has started."""

    def __init__(self, out: str) -> None:
        self._name = re.sub(r"\W+", "-", out.rstrip("/").rpartition("/")[2])
        self.seen: list[RayAgent] = []
        """All agents, including those that are gone."""
        self.present: dict[int, RayAgent] = {}
        """The present agents, by index."""

    @property
    def are_arriving(self) -> bool:
        """Whether some agents have not greeted yet."""
        here = self.present.values()
        return any(not a.has_greeted and a.answer is not None for a in here)

    @property
    def working(self) -> list[RayAgent]:
        """Agents that have work."""
        return [a for a in self.present.values() if a.has_greeted and a.answer is not None]

    @property
    def idle(self) -> list[RayAgent]:
        """Agents that have greeted but have no work."""
        return [a for a in self.present.values() if a.has_greeted and a.answer is None]

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
        greeting = actor.greet.options(max_task_retries=0).remote()
        deadline = time.monotonic() + START_SECONDS
        self.present[index] = RayAgent(index, node, cpus, actor, greeting, deadline)
        self.seen.append(self.present[index])

    def employ(self, agent: RayAgent, order: Order) -> None:
        """Give work to an agent."""
        agent.answer = agent.actor.run.remote(order)

    def answers(self, seconds: float) -> Iterator[tuple[RayAgent, Answer]]:
        """Yield agents that have answered, or did not start in time. Waits for the first one."""
        here = self.present.values()
        awaited = {agent.answer: agent for agent in here if agent.answer is not None}
        ready = _ready(awaited, seconds)
        for reference, agent in awaited.items():
            if reference in ready:
                answer = _got(reference, strict=agent.has_greeted)
            elif not agent.has_greeted and time.monotonic() > agent.deadline:
                answer = Lost(f"no answer within {START_SECONDS:.0f} s")
            else:
                continue
            agent.answer = None
            agent.has_greeted |= isinstance(answer, tuple)
            yield agent, answer

    def look(self) -> None:
        """Update the progress of all working agents. Slow agents keep their last known progress."""
        asked = {
            agent.actor.condition.options(max_task_retries=0).remote(): agent
            for agent in self.working
        }
        for reference in _ready(asked, ANSWER_SECONDS, len(asked)) if asked else ():
            if isinstance(found := _got(reference), Condition):
                asked[reference].condition = found

    def forget(self, agent: RayAgent) -> None:
        """Remove an agent that has ended, and free its CPUs."""
        import ray

        del self.present[agent.index]
        ray.kill(agent.actor)

    def dismiss_all(self) -> None:
        """End all agents at once. Other agents or a resumed build repeat uncommitted work."""
        for agent in list(self.present.values()):
            self.forget(agent)


def _ready(references: Iterable[Any], seconds: float, num_wanted: int = 1) -> list[Any]:
    """Wait until so many references are ready, and return all that are."""
    import ray

    if not (waiting := list(references)):
        time.sleep(seconds)
        return []
    found, others = ray.wait(waiting, num_returns=num_wanted, timeout=seconds)
    if others:
        found += ray.wait(others, num_returns=len(others), timeout=0)[0]
    return list(found)


def _got(reference: Any, *, strict: bool = True) -> Any:
    """Return the answer of an agent, or that it is gone.

    Raises:
        RayTaskError: the agent has a bug. Only if `strict`.
    """
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(reference)
    except RayError as error:
        if strict and isinstance(error, RayTaskError):
            raise
        return Lost(str(error).strip().rpartition("\n")[2])

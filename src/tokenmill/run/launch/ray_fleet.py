"""Start, query and end the agents of a build on the nodes of a Ray cluster."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tokenmill.run.launch.ray_actor import AgentActor, Condition, Greeting, Leaving

Answer = TypeVar("Answer", Condition, Greeting, Leaving)

START_SECONDS = 120.0
"""How long to wait for an agent to start. After that, something else holds the node's CPUs."""
ANSWER_SECONDS = 5.0
MAX_RESTARTS = 20
"""How often Ray restarts an agent on its node, so that an agent that always dies ends."""


@dataclass(frozen=True, slots=True)
class Node:
    """A live node."""

    id: str
    address: str
    cpus: float
    """All CPUs of the node, free or not."""


@dataclass(slots=True, eq=False)
class Agent:
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
        self.seen: list[Agent] = []
        """All agents, including those that are gone."""
        self.agents: dict[int, Agent] = {}
        """The present agents, by index."""

    @property
    def arriving(self) -> list[Agent]:
        """Agents that have not greeted yet."""
        return [agent for agent in self.agents.values() if agent.greeting is not None]

    @property
    def working(self) -> list[Agent]:
        """Agents that have work."""
        return [agent for agent in self.agents.values() if agent.leaving is not None]

    @property
    def idle(self) -> list[Agent]:
        """Agents that have greeted but have no work."""
        here = self.agents.values()
        return [agent for agent in here if agent.greeting is None and agent.leaving is None]

    def nodes(self) -> list[Node]:
        """Return live nodes with at least one CPU, sorted by id."""
        nodes = [
            Node(node["NodeID"], node["NodeManagerAddress"], node["Resources"].get("CPU", 0.0))
            for node in ray.nodes()
            if node["Alive"]
        ]
        return sorted((node for node in nodes if node.cpus >= 1), key=lambda node: node.id)

    def free_cpus(self) -> float:
        """Return the number of free CPUs of all nodes."""
        return float(ray.available_resources().get("CPU", 0.0))

    def hire(self, index: int, node: Node, cpus: float) -> None:
        """Ask Ray for an actor on a node, which may never start."""
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
        self.agents[index] = Agent(
            index, node, cpus, actor, actor.greet.options(max_task_retries=0).remote(), deadline
        )
        self.seen.append(self.agents[index])

    def greetings(self, seconds: float) -> Iterator[tuple[Agent, Greeting | str]]:
        """Yield agents that have started, and the reason for those that did not start in time."""
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

    def employ(self, agent: Agent, order: bytes) -> None:
        """Give work to an agent."""
        agent.leaving = agent.actor.run.remote(order)

    def leavings(self, seconds: float) -> Iterator[tuple[Agent, Leaving | None]]:
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

    def forget(self, agent: Agent) -> None:
        """Remove an agent that has ended, and free its CPUs."""
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
    try:
        return msgspec.json.decode(ray.get(reference), type=kind)
    except RayTaskError:
        raise
    except RayError:
        return None

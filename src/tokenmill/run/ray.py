"""Builds on Ray, with one agent in an actor on each node.

Ray only starts the agents and reports which of them are gone. No document, token or receipt passes
through it. If this process or the head node dies, the same command resumes, with or without Ray.
"""

from __future__ import annotations

import logging
import math
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from tokenmill.core.errors import EngineError, StorageError, TokenmillError, UserError
from tokenmill.core.installed import install_command
from tokenmill.run.job import versions
from tokenmill.run.launch import LaunchRequest
from tokenmill.run.ray_agents import (
    Answer,
    Greeting,
    Leaving,
    Lost,
    Node,
    Order,
    RayAgent,
    RayAgents,
)

OLDEST = (2, 52)
"""Older versions let web pages in a browser on a node run code there (CVE-2025-62593)."""
TELL_SECONDS = 10.0
WAIT_SECONDS = 2.0
ROOM_SECONDS = 15.0
"""How long to wait for CPUs. Ray needs this to notice that the actors of a killed process ended."""
NODE_SECONDS = 300.0
"""How long to wait for a node when none is left."""
LEAVE_SECONDS = 30.0
"""How long to wait for the other agents to notice that the dataset is complete."""


def launch(request: LaunchRequest) -> None:
    """Start agents on the nodes of a Ray cluster, and return when the dataset is complete.

    `request.where` is `ray` for the cluster of this machine or of RAY_ADDRESS, or
    `ray://HOST:PORT` for the Ray Client server of another cluster.

    Raises:
        UserError: the cluster cannot be reached, or its nodes have no room or other packages.
        StorageError: no node is left.
        TokenmillError: the error of the first agent that failed, as for a build.
    """
    _check_installed()
    with _connection(request.where):
        agents = RayAgents(request.recipe.out)
        try:
            RayBuild(request, agents).run()
        finally:
            agents.dismiss_all()


def _check_installed() -> None:
    hint = f"{install_command('ray')}, here and on all nodes"
    try:
        found = version("ray")
    except PackageNotFoundError as error:
        raise UserError("--on ray needs the package ray", hint=hint) from error
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < OLDEST:
        why = "it lets web pages run code on the nodes (CVE-2025-62593)"
        raise UserError(f"ray {found} is too old", why=why, hint=hint)


@contextmanager
def _connection(where: str) -> Iterator[None]:
    """Connect to a cluster, and keep the previous handler of SIGTERM."""
    import ray

    address = "auto" if where == "ray" else where
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        hint = (
            "start one with ray start --head; from another machine, use --on ray://HOST:10001 "
            "(its Ray Client server) or ray job submit"
        )
        raise UserError("cannot reach a Ray cluster", why=str(error), hint=hint) from error
    try:
        signal.signal(signal.SIGTERM, before)
        yield
    finally:
        ray.shutdown()


@dataclass(slots=True)
class RayBuild:
    """Starts agents where there is room. Lost agents are replaced; agents that left are not."""

    request: LaunchRequest
    agents: RayAgents
    job: str = ""
    """The job that agents join. "" until the first agent has started it."""
    count: int = 0
    vacant: list[int] = field(default_factory=list)
    """Indexes of lost agents. An agent that gets one takes over its claims at once."""
    ended: set[str] = field(default_factory=set)
    """Nodes with an agent that found no more work, failed, or never started."""
    errors: list[TokenmillError] = field(default_factory=list)
    result: Leaving | None = None
    _started: float = field(default_factory=time.monotonic)
    _told: float = field(default_factory=time.monotonic)
    _seen: float = field(default_factory=time.monotonic)
    """The last time when there was an agent."""

    def run(self) -> None:
        """Run the build, and return when the dataset is complete.

        Raises:
            UserError: the cluster has no room, or a node has other packages.
            StorageError: no node is left.
            TokenmillError: the first error of an agent, if no agent finished the build.
        """
        self._hire_first()
        self._check_packages()
        while self.result is None:
            for agent in self.agents.idle:  # the first one starts the job alone
                if self.job or not self.agents.working:
                    self.agents.employ(agent, self._order(agent))
            for agent, answer in self.agents.answers(WAIT_SECONDS):
                self._hear(agent, answer)
            if time.monotonic() - self._told >= TELL_SECONDS:
                self._told = time.monotonic()
                self.agents.look()
                self._say(*self._progress())
            if self.result is None:
                self._hire_more()
                self._check_anybody_left()
        self._finish(self.result)

    def _hire_first(self) -> None:
        """Start an agent in each place. Without room, raise an error: Ray would just wait."""
        places = list(self._places(self.agents.nodes()))
        wanted = self.request.num_agents or max(len(places), 1)
        if len(places) < wanted:
            raise _no_room(wanted, f"the nodes that are up have room for {len(places):,}")
        chosen = places[:wanted]
        needed, deadline = sum(cpus for _, cpus in chosen), time.monotonic() + ROOM_SECONDS
        while (free := self.agents.free_cpus()) < needed:
            if time.monotonic() > deadline:
                raise _no_room(wanted, f"they need {needed:g} CPUs, and {free:g} are free")
            time.sleep(1)
        for index, (node, cpus) in enumerate(chosen):
            self.agents.hire(index, node, cpus)
        self.count = wanted
        num_nodes = len({node.id for node, _ in chosen})
        self._say("agents", f"{wanted:,}, on {num_nodes:,} nodes of Ray, {needed:g} CPUs")

    def _check_packages(self) -> None:
        """Wait until all agents have started; refuse nodes with other packages."""
        differences: set[str] = set()
        missing: set[str] = set()
        while self.agents.are_arriving:
            for agent, answer in self.agents.answers(WAIT_SECONDS):
                if isinstance(answer, Lost):
                    missing.add(f"{agent.node.address}: {answer.why}")
                elif isinstance(answer, tuple):
                    differences.update(_differences(answer))
        if missing:
            hint = "check that the same packages are installed there, and that its CPUs are free"
            raise UserError(
                "a Ray node did not start its agent", why="; ".join(sorted(missing)), hint=hint
            )
        if differences:
            raise UserError(
                "the Ray nodes have other packages than this machine",
                why="; ".join(sorted(differences)),
                hint="install the same versions on all machines",
            )

    def _order(self, agent: RayAgent) -> Order:
        recipe = self.request.recipe
        if self.request.options.get("cpus_per_agent") and recipe.resources.workers is None:
            resources = msgspec.structs.replace(recipe.resources, workers=int(agent.cpus))
            recipe = msgspec.structs.replace(recipe, resources=resources)
        return Order(
            recipe=recipe,
            index=agent.index,
            num_agents=self.count,
            folder=str(Path.cwd()),
            job=self.job,
        )

    def _hear(self, agent: RayAgent, answer: Answer) -> None:
        """Handle an answer. A node that joins with other packages gets no work."""
        where = f"agent {agent.index} on {agent.node.address}"
        if isinstance(answer, str):
            self.job = answer
        elif isinstance(answer, Leaving):
            self._note_end(agent, where, answer)
        elif isinstance(answer, Lost) and agent.has_greeted:
            self._replace(agent, "lost", where)
            if agent.node in self.agents.nodes():
                self.ended.add(agent.node.id)
                what = f"the {where} died repeatedly"
                self.errors.append(EngineError(what, hint="ray logs shows its last output"))
        elif wrong := answer.why if isinstance(answer, Lost) else "; ".join(_differences(answer)):
            self._replace(agent, "refused", f"{agent.node.address}: {wrong}")
            self.ended.add(agent.node.id)
        else:
            self._say("joined", where)

    def _note_end(self, agent: RayAgent, where: str, leaving: Leaving) -> None:
        self.agents.forget(agent)
        if leaving.dataset_id:
            self.result = leaving
            return
        self.ended.add(agent.node.id)
        if leaving.error is None:
            self._say("left", f"{where}: no work left to claim")
            return
        self.errors.append(leaving.error.rebuild())
        self._say("failed", f"{where}: {self.errors[-1].what}")
        if not self.job:
            raise self.errors[-1]

    def _replace(self, agent: RayAgent, what: str, line: str) -> None:
        """Free the index of an agent for another one."""
        self.agents.forget(agent)
        self.vacant.append(agent.index)
        self._say(what, line)

    def _progress(self) -> tuple[str, str]:
        seen = [agent.condition for agent in self.agents.seen]
        total = max((condition.total_bytes for condition in seen), default=0)
        before = min((c.resumed_bytes for c in seen if c.total_bytes), default=0)
        done = min(before + sum(condition.done_bytes for condition in seen), total)
        tokens = sum(condition.tokens for condition in seen)
        seconds = time.monotonic() - self._started
        working = len(self.agents.working)
        line = f"{working:,} agents, {tokens / 1e6:,.1f} M tokens, {seconds:,.0f} s"
        return f"{done / max(total, 1):.1%}", line

    def _hire_more(self) -> None:
        """Start agents on nodes that have joined, with the indexes of lost agents first."""
        most = self.request.num_agents or math.inf
        has = Counter(agent.node.id for agent in self.agents.present.values())
        nodes = [node for node in self.agents.nodes() if node.id not in self.ended]
        for node, cpus in self._places(nodes):
            if has[node.id]:
                has[node.id] -= 1
            elif len(self.agents.present) < most and self.agents.free_cpus() >= cpus:
                index = min(self.vacant, default=self.count)
                self.vacant = [other for other in self.vacant if other != index]
                self.count = max(self.count, index + 1)
                self.agents.hire(index, node, cpus)

    def _places(self, nodes: Iterable[Node]) -> Iterator[tuple[Node, float]]:
        """Yield the node and the CPUs of each possible agent: one per node first, then a second."""
        each: int | None = self.request.options.get("cpus_per_agent")
        workers = self.request.recipe.resources.workers
        if each is None:
            yield from ((node, min(workers or node.cpus, node.cpus)) for node in nodes)
            return
        rows = [(node, int(node.cpus // each)) for node in nodes]
        for row in range(max((places for _, places in rows), default=0)):
            yield from ((node, float(each)) for node, places in rows if row < places)

    def _check_anybody_left(self) -> None:
        """If no agent is left, raise the reason, or wait for a node to replace a lost one."""
        if self.agents.present:
            self._seen = time.monotonic()
        elif self.errors:
            raise self.errors[0]
        elif self.ended:
            self.ended.clear()  # the agents that waited are gone, so let these nodes resume
        elif time.monotonic() - self._seen > NODE_SECONDS:
            hint = "the same command resumes, with or without --on ray"
            raise StorageError("no Ray node is left for this build", hint=hint)

    def _finish(self, result: Leaving) -> None:
        deadline = time.monotonic() + LEAVE_SECONDS
        while self.agents.working and time.monotonic() < deadline:
            for agent, _ in self.agents.answers(WAIT_SECONDS):
                self.agents.forget(agent)
        self._say("documents", f"{result.documents:,}")
        self._say("tokens", f"{result.tokens:,} in {result.shards:,} shards")
        self._say("dataset", f"{result.dataset_id}, {self.request.recipe.out}")
        self._say("time", f"{time.monotonic() - self._started:.1f} s")

    def _say(self, name: str, line: str) -> None:
        self.request.say(f"{name:>12}  {line}")


def _no_room(wanted: int, why: str) -> UserError:
    agents = "1 agent" if wanted == 1 else f"{wanted:,} agents"
    hint = "wait for other jobs, or lower --agents or --cpus-per-agent; ray status shows more"
    return UserError(f"the Ray cluster has no room for {agents}", why=why, hint=hint)


def _differences(greeting: Greeting) -> list[str]:
    """Return how the packages of a node differ from this machine's."""
    (host, theirs), own = greeting, versions()
    names = [name for name in sorted({*own, *theirs}) if own.get(name) != theirs.get(name)]
    return [
        f"{name} {theirs.get(name, 'is missing')} on {host}, {own.get(name, 'none')} here"
        for name in names
    ]

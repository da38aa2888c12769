"""What a build on Ray does about room, packages, and nodes that come and go; without Ray."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from tokenmill.core.errors import DataError, StorageError, UserError
from tokenmill.run import ray as ray_run
from tokenmill.run.executor import failure
from tokenmill.run.job import versions
from tokenmill.run.launch import LaunchRequest
from tokenmill.run.ray import RayBuild
from tokenmill.run.ray_agents import Answer, Condition, Greeting, Leaving, Lost, Order
from tokenmill.run.recipe.options import Recipe, ResourceOptions

DONE = Leaving(dataset_id="xxh3:1", documents=5, tokens=60, shards=2)
LEFT = Leaving()
LOST = Lost("its node died")


@dataclass(frozen=True)
class Node:
    id: str
    address: str
    cpus: float


@dataclass(eq=False)
class Agent:
    index: int
    node: Node
    cpus: float
    orders: list[Order] = field(default_factory=list)
    has_greeted: bool = False
    is_working: bool = False
    condition: Condition = field(default_factory=Condition)


class PaperAgents:
    """A cluster on paper: `plot` says what happens to the agents, in the order of their work."""

    def __init__(
        self, nodes: dict[str, float], plot: list[Leaving | Lost], free: float = 99
    ) -> None:
        self.living = dict(nodes)
        self.plot, self.free = iter(plot), free
        self.greetings: dict[str, Greeting] = {}
        self.present: dict[int, Agent] = {}
        self.seen: list[Agent] = []
        self.joining: dict[str, float] = {}
        """Nodes that join when the first agent is lost."""

    def nodes(self) -> list[Node]:
        return [Node(name, name, cpus) for name, cpus in self.living.items()]

    def free_cpus(self) -> float:
        return self.free

    def hire(self, index: int, node: Node, cpus: float) -> None:
        self.present[index] = Agent(index, node, cpus)
        self.seen.append(self.present[index])

    @property
    def are_arriving(self) -> bool:
        return not all(agent.has_greeted for agent in self.present.values())

    @property
    def working(self) -> list[Agent]:
        return [agent for agent in self.present.values() if agent.is_working]

    @property
    def idle(self) -> list[Agent]:
        return [a for a in self.present.values() if a.has_greeted and not a.is_working]

    def employ(self, agent: Agent, order: Order) -> None:
        agent.orders.append(order)
        agent.is_working = True

    def answers(self, seconds: float) -> Iterator[tuple[Agent, Answer]]:
        for agent in list(self.present.values()):
            if not agent.has_greeted:
                agent.has_greeted = True
                yield agent, self.greetings.get(agent.node.id, (agent.node.id, versions()))
                return
        if not self.working:
            return
        agent = self.working[0]
        agent.is_working = False
        if not agent.orders[-1].job and not any(each.orders[-1].job for each in self.working):
            yield agent, "j0b"
            return
        answer = next(self.plot, LEFT)
        if isinstance(answer, Lost):
            del self.living[agent.node.id]
            self.living |= self.joining
        yield agent, answer

    def look(self) -> None:
        pass

    def forget(self, agent: Agent) -> None:
        del self.present[agent.index]


def run(agents: PaperAgents, num_agents: int | None = None, **options: int) -> list[str]:
    """What a user sees of a build on this cluster."""
    lines: list[str] = []
    workers = options.pop("workers", None)
    recipe = Recipe(
        inputs=["a.jsonl"], tokenizer="t", out="c", resources=ResourceOptions(workers=workers)
    )
    request = LaunchRequest(
        where="ray",
        recipe=recipe,
        command=(),
        num_agents=num_agents,
        options=options,
        say=lines.append,
    )
    RayBuild(request, agents).run()  # type: ignore[arg-type]
    return [line.strip() for line in lines if not line.lstrip().startswith("time")]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_run, "ROOM_SECONDS", 0)
    monkeypatch.setattr(ray_run, "NODE_SECONDS", 0)


def test_one_agent_a_node_begins_the_job_and_the_others_join_it() -> None:
    agents = PaperAgents({"n1": 4, "n2": 8}, [LEFT, DONE])
    assert run(agents) == [
        "agents  2, on 2 nodes of Ray, 12 CPUs",
        "left  agent 0 on n1: no work left to claim",
        "documents  5",
        "tokens  60 in 2 shards",
        "dataset  xxh3:1, c",
    ]
    assert [(a.orders[-1].index, a.cpus) for a in agents.seen] == [(0, 4), (1, 8)]
    jobs = [[order.job for order in agent.orders] for agent in agents.seen]
    assert jobs == [["", "j0b"], ["j0b"]]


def test_nodes_get_as_many_agents_as_they_have_room_for() -> None:
    agents = PaperAgents({"n1": 5, "n2": 2}, [DONE])
    run(agents, cpus_per_agent=2)
    assert [(a.node.id, a.cpus) for a in agents.seen] == [("n1", 2), ("n2", 2), ("n1", 2)]
    assert agents.seen[0].orders[0].recipe.resources.workers == 2


def test_the_number_of_workers_is_the_number_of_cpus() -> None:
    agents = PaperAgents({"n1": 5}, [DONE])
    run(agents, workers=3)
    assert [agent.cpus for agent in agents.seen] == [3]


@pytest.mark.parametrize(
    ("cpus", "free", "agents", "why"),
    [
        (1, 99, 3, "the nodes that are up have room for 2"),
        (4, 3, None, "they need 8 CPUs, and 3 are free"),
    ],
)
def test_more_agents_than_there_is_room_for_are_refused(
    cpus: int, free: int, agents: int | None, why: str
) -> None:
    cluster = PaperAgents({"n1": cpus, "n2": cpus}, [], free)
    with pytest.raises(UserError, match=f"no room for {agents or 2} agents") as caught:
        run(cluster, agents)
    assert caught.value.why == why
    assert not cluster.seen


def test_nodes_with_other_packages_are_refused_before_there_is_work() -> None:
    agents = PaperAgents({"n1": 1, "n2": 1}, [])
    agents.greetings["n2"] = ("h2", {**versions(), "numpy": "0.1"})
    with pytest.raises(UserError, match="other packages") as caught:
        run(agents)
    assert caught.value.why == f"numpy 0.1 on h2, {versions()['numpy']} here"
    assert not any(agent.orders for agent in agents.seen)


def test_the_agent_of_a_new_node_succeeds_the_one_that_is_lost() -> None:
    agents = PaperAgents({"n1": 1, "n2": 1}, [LOST, LEFT, DONE])
    agents.joining = {"n3": 1}
    assert run(agents)[1:4] == [
        "lost  agent 0 on n1",
        "joined  agent 0 on n3",
        "left  agent 1 on n2: no work left to claim",
    ]
    assert [(a.node.id, a.index) for a in agents.seen] == [("n1", 0), ("n2", 1), ("n3", 0)]


def test_a_node_that_joins_with_other_packages_gets_no_work() -> None:
    agents = PaperAgents({"n1": 1, "n2": 1}, [LOST, DONE])
    agents.joining = {"n3": 1}
    agents.greetings["n3"] = ("h3", {**versions(), "numpy": "0.1"})
    refused = f"refused  n3: numpy 0.1 on h3, {versions()['numpy']} here"
    assert run(agents)[1:3] == ["lost  agent 0 on n1", refused]


def test_an_error_of_one_agent_does_not_stop_the_others() -> None:
    failed = Leaving(error=failure("", DataError("a full disk")).error)
    agents = PaperAgents({"n1": 1, "n2": 1}, [failed, DONE])
    assert "failed  agent 0 on n1: a full disk" in run(agents)


def test_the_first_error_is_raised_where_nobody_finishes() -> None:
    errors = [DataError("bad", where="x"), UserError("worse")]
    leavings = [Leaving(error=failure("", error).error) for error in errors]
    with pytest.raises(DataError, match="bad") as caught:
        run(PaperAgents({"n1": 1, "n2": 1}, leavings))
    assert caught.value.where == "x"


def test_when_all_that_stayed_are_lost_those_that_left_take_it_up_again() -> None:
    agents = PaperAgents({"n1": 1, "n2": 1}, [LEFT, LOST, DONE])
    assert "dataset  xxh3:1, c" in run(agents)
    assert [(a.node.id, a.index) for a in agents.seen] == [("n1", 0), ("n2", 1), ("n1", 1)]


def test_without_any_node_the_build_ends_and_can_be_resumed() -> None:
    with pytest.raises(StorageError, match="no Ray node is left") as caught:
        run(PaperAgents({"n1": 1}, [LOST]))
    assert "the same command resumes" in caught.value.hint

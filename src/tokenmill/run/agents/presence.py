"""A running agent: its claims and its heart-beat."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tokenmill.core.errors import TokenmillError
from tokenmill.run.agents.agent import (
    AgentState,
    Tallies,
    listed_agents,
    new_agent,
    parse_state,
    state_name,
)
from tokenmill.run.agents.claims import Claims
from tokenmill.run.agents.heart_beat import HeartBeat
from tokenmill.run.agents.shard import Shard
from tokenmill.run.progress import Snapshot
from tokenmill.store.manifest import Attempt
from tokenmill.store.objects.object_store import ObjectStore


@dataclass(slots=True)
class Presence:
    """The claims and the heart-beat of this agent."""

    claims: Claims
    beat: HeartBeat
    _before: Snapshot | None = None
    """The progress of the build when this agent started."""

    def tell(self, snapshot: Snapshot, num_recycled: int) -> None:
        """Put the agent's progress into its next beat."""
        before = self._before = self._before or snapshot
        self.beat.attempt.recycled_workers = num_recycled
        self.beat.tallies = Tallies(
            documents=max(snapshot.documents - before.documents, 0),
            tokens=max(snapshot.tokens - before.tokens, 0),
            bytes_done=max(snapshot.done_bytes - snapshot.resumed_bytes, 0),
            bytes_total=snapshot.total_bytes,
            items=sorted(self.claims.mine)[:1000],
        )


@contextmanager
def present(
    store: ObjectStore,
    items: Sequence[str],
    attempt: Attempt,
    versions: dict[str, str],
    *,
    shard: Shard | None,
    alone: bool,
) -> Iterator[Presence]:
    """Register this process as an agent until the block ends.

    Set `alone` if this process is the only one that holds the lock of the output.
    """
    agent = new_agent(shard)
    beat = HeartBeat(store, agent, attempt=attempt, versions=versions)
    alone = alone and all(state.host == socket.gethostname() for state in states(store))
    claims = Claims(store, agent, items, time.monotonic, shard=shard, alone=alone)
    beat.begin()
    try:
        yield Presence(claims, beat)
    except BaseException as error:
        beat.end(error.what if isinstance(error, TokenmillError) else type(error).__name__)
        raise
    beat.end("done")


def states(store: ObjectStore) -> list[AgentState]:
    """Return the states of all agents, sorted by name. Unreadable states are left out."""
    names = (state_name(agent) for agent in listed_agents(store))
    found = (parse_state(data) for _, data in store.read_all(names))
    return sorted((state for state in found if state), key=lambda state: state.agent)


def attempts_of(store: ObjectStore) -> list[Attempt]:
    """Return all attempts at a run, in the order of their start."""
    found = [(state, state.attempt) for state in states(store) if state.attempt]
    # `started` counts whole seconds; the clock of the last beat is finer.
    found.sort(key=lambda each: (each[1].started, each[0].clock - each[0].seconds))
    return [attempt for _, attempt in found]

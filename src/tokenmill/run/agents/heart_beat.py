"""The thread that shows other agents that this agent is alive."""

from __future__ import annotations

import os
import socket
import threading
import time

from tokenmill.core.errors import StorageError
from tokenmill.run.agents.agent import Agent, AgentState, Tallies, state_name
from tokenmill.store.canonical import canonical_json
from tokenmill.store.manifest import Attempt
from tokenmill.store.objects.object_store import ObjectStore

BEAT_SECONDS = 20.0
LAST_BEAT_SECONDS = 5.0
"""How long an agent waits until its last beat is stored."""


class HeartBeat:
    """Replaces `work/agents/AGENT.json` every 20 s, from before the first claim to the end.

    An error of the store does not end the build. Others may take the agent for dead, which only
    costs time.
    """

    def __init__(
        self,
        store: ObjectStore,
        agent: Agent,
        *,
        attempt: Attempt,
        versions: dict[str, str],
        seconds: float = 0,
    ) -> None:
        self.tallies = Tallies()
        """The contents of the next beat. Any thread may replace the object."""
        self.attempt = attempt
        self._store, self._agent, self._versions = store, agent, versions
        self._seconds, self._started = seconds or BEAT_SECONDS, time.monotonic()
        self._counter, self._left = 0, ""
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="heart-beat")

    def begin(self) -> None:
        """Store the first beat, so that claims have an owner, and beat until `end`."""
        self._beat()
        self._thread.start()

    def end(self, why: str) -> None:
        """Store that this agent leaves, and why. Others take over its items at once."""
        if self._ending.is_set():
            return
        self._left = why or "done"
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(LAST_BEAT_SECONDS)

    @property
    def state(self) -> AgentState:
        """The current state of the agent."""
        return AgentState(
            agent=self._agent.name,
            counter=self._counter,
            host=socket.gethostname()[:1000],
            pid=os.getpid(),
            workers=self.attempt.workers,
            seconds=round(time.monotonic() - self._started, 3),
            clock=round(time.time(), 3),
            versions=self._versions,
            attempt=self.attempt,
            tallies=self.tallies,
            left=self._left[:1000],
        )

    def _run(self) -> None:
        while not self._ending.wait(self._seconds):
            self._beat()
        self._beat()

    def _beat(self) -> None:
        self._counter += 1
        try:
            self._store.replace(state_name(self._agent.name), canonical_json(self.state))
        except StorageError:
            return  # the next beat may get through

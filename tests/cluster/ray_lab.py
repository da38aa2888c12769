"""A Ray cluster on this machine whose nodes can be killed; the head has no CPUs.

It runs in a process of its own (this file), so that the tests never import Ray: it takes over
signals, and makes warnings. Only whoever knows the token of the cluster can talk to it.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

MEMORY = 80_000_000
SOURCES = Path(__file__).parents[2] / "src"


def why_not() -> str:
    """Why no cluster can be started on this machine; "" if one can."""
    return "" if find_spec("ray") else "Ray is not installed (make cluster installs it)"


@dataclass
class RayLab:
    """A running cluster, and what a process needs to use it."""

    process: subprocess.Popen[str]
    token: str
    nodes: list[str] = field(default_factory=list)
    address: str = ""

    @property
    def environment(self) -> dict[str, str]:
        return {**environment(self.token), "RAY_ADDRESS": self.address}

    def add_node(self, cpus: int = 1) -> str:
        """Start a node; returns its id."""
        self.nodes.append(self.ask(f"add {cpus}"))
        return self.nodes[-1]

    def kill_node(self, number: int) -> None:
        """Kill a node with all that runs on it, as when its power fails."""
        self.ask(f"kill {number}")

    def kill_head(self) -> None:
        """Kill the process that knows of all nodes and actors."""
        self.ask("kill head")

    def ask(self, command: str) -> str:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("answer "):
                return line.removeprefix("answer ").strip()
        raise AssertionError(f"the cluster ended over {command!r}")


def environment(token: str) -> dict[str, str]:
    """The variables of all processes of a cluster."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    return {
        **others,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_raylet_start_wait_time_s": "120",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(SOURCES), *sys.path]),
    }


@contextmanager
def ray_lab(num_nodes: int) -> Iterator[RayLab]:
    """A cluster of a head and some nodes with one CPU each."""
    token = secrets.token_hex(32)
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(token),
    ) as process:
        lab = RayLab(process, token)
        try:
            lab.address = lab.ask("address")
            for _ in range(num_nodes):
                lab.add_node()
            yield lab
        finally:
            process.communicate("", timeout=120)


def serve() -> None:
    """Carry out the commands on standard input; at its end, stop the cluster."""
    from ray.cluster_utils import Cluster

    options = {"object_store_memory": MEMORY, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **options})
    nodes = []
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        answer = ""
        if command == "address":
            answer = cluster.address
        elif command == "add":
            nodes.append(cluster.add_node(num_cpus=int(argument), object_store_memory=MEMORY))
            answer = nodes[-1].node_id
        elif argument == "head":
            cluster.head_node.kill_gcs_server()
        else:
            cluster.remove_node(nodes[int(argument)], allow_graceful=False)
        print("answer", answer, flush=True)
    for node in cluster.list_all_nodes():
        node.kill_all_processes(check_alive=False, allow_graceful=False)


if __name__ == "__main__":
    serve()

"""Builds on Ray, with one agent in an actor on each node.

Ray only starts the agents and reports which of them are gone. No document, token or receipt passes
through it. If this process or the head node dies, the same command resumes, with or without Ray.
"""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.run.launch.launcher import LaunchRequest

OLDEST = (2, 52)
"""Older versions let web pages in a browser on a node run code there (CVE-2025-62593)."""


def launch(where: str, request: LaunchRequest) -> None:
    """Start agents on the nodes of a Ray cluster, and return when the dataset is complete.

    `where` is `ray` for the cluster of this machine or of RAY_ADDRESS, or `ray://HOST:PORT` for the
    Ray Client server of another cluster.

    Raises:
        UserError: the cluster cannot be reached, or its nodes have no room or other packages.
        StorageError: no node is left.
        TokenmillError: the error of the first agent that failed, as for a build.
    """
    _check_installed()
    with _connection(where):
        from tokenmill.run.launch.ray_fleet import Fleet
        from tokenmill.run.launch.ray_run import Run

        fleet = Fleet(request.recipe.out)
        try:
            Run(request, fleet).run()
        finally:
            fleet.dismiss_all()


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

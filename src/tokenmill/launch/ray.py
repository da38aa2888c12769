"""Builds on Ray: agents in actors, one a node.

Ray starts the agents and says which of them are gone, and that is all: no document, no token and no
receipt passes through it. This process may die, and so may the head of the cluster: the same
command resumes, on Ray or without it.
"""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from tokenmill.errors import UserError
from tokenmill.launch.launcher import LaunchRequest

OLDEST = (2, 52)
"""Older ones let any page in a browser on a node run code there (CVE-2025-62593)."""


def launch(where: str, request: LaunchRequest) -> None:
    """Start agents on the nodes of a Ray cluster, and return when the dataset is complete.

    `where` is `ray` for the cluster that this machine belongs to, or that RAY_ADDRESS names, and
    `ray://HOST:PORT` for one with a Ray Client server there.

    Raises:
        UserError: there is no such cluster, or its nodes have no room, or other packages.
        StorageError: no node is left.
        TokenmillError: as for a build, of the first agent that failed.
    """
    _check_installed()
    with _connection(where):
        from tokenmill.launch.ray_fleet import Fleet
        from tokenmill.launch.ray_run import Run

        fleet = Fleet(request.recipe.out)
        try:
            Run(request, fleet).run()
        finally:
            fleet.dismiss_all()


def _check_installed() -> None:
    hint = "pip install 'tokenmill[ray]', here and on all nodes"
    try:
        found = version("ray")
    except PackageNotFoundError as error:
        raise UserError("--on ray needs the package ray", hint=hint) from error
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < OLDEST:
        why = "it lets web pages run code on the nodes (CVE-2025-62593)"
        raise UserError(f"ray {found} is too old", why=why, hint=hint)


@contextmanager
def _connection(where: str) -> Iterator[None]:
    """Connect to a cluster; SIGTERM stays with whoever had it before."""
    import ray

    address = "auto" if where == "ray" else where
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        hint = (
            "ray start --head starts one; from elsewhere, name its Ray Client server as "
            "--on ray://HOST:10001, or hand the command to ray job submit"
        )
        raise UserError("cannot reach a Ray cluster", why=str(error), hint=hint) from error
    try:
        signal.signal(signal.SIGTERM, before)
        yield
    finally:
        ray.shutdown()

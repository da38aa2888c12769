"""Launchers start the agents of one build on many machines.

A launcher only starts processes. It keeps no state that the build needs, so any agent can die, and
so can the launcher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.suggestions import did_you_mean
from tokenmill.run.recipe.options import Recipe

LAUNCHERS = {"slurm": "tokenmill.run.slurm", "ray": "tokenmill.run.ray"}
"""The module of each launcher, by the name or scheme in `--on`. It has a function `launch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """The build that a launcher starts, and its options."""

    where: str
    """The value of `--on`: `slurm`, `ray` or `ray://ADDRESS`."""
    recipe: Recipe
    command: tuple[str, ...]
    """`build INPUT ... --out OUT`: the command line of an agent, without launcher options."""
    num_agents: int | None
    """The number of agents, one per machine. None lets the launcher decide."""
    options: dict[str, Any]
    """Options of single launchers, by name."""
    say: Callable[[str], None]
    """Shows a line to the user."""


def launch(request: LaunchRequest) -> None:
    """Start the agents.

    Raises:
        UserError: there is no such launcher, or the cluster refuses the request or cannot be
            reached.
    """
    name = request.where.partition("://")[0]
    if name not in LAUNCHERS:
        raise UserError(
            f"invalid value of --on: {request.where!r}",
            why=f"choose from {', '.join(LAUNCHERS)}",
            hint=did_you_mean(name, LAUNCHERS),
        )
    import_module(LAUNCHERS[name]).launch(request)

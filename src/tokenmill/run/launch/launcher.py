"""Launchers start the agents of one build on many machines.

A launcher is a module with a function `launch`. To add one, write the module and add it to
`LAUNCHERS`. A launcher only starts processes. It keeps no state that the build needs, so any agent
can die, and so can the launcher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from tokenmill.core.errors import UserError
from tokenmill.core.suggestions import did_you_mean
from tokenmill.run.recipe.options import Recipe

LAUNCHERS = {
    "slurm": "tokenmill.run.launch.slurm",
    "ray": "tokenmill.run.launch.ray",
}
"""The module of each launcher, by the name or scheme in `--on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """The build that a launcher starts, and its options."""

    recipe: Recipe
    command: tuple[str, ...]
    """`build INPUT ... --out OUT`: the command line of an agent, without launcher options."""
    num_agents: int | None
    """The number of agents, one per machine. None lets the launcher decide."""
    options: dict[str, Any]
    """Options of single launchers, by name."""
    say: Callable[[str], None]
    """Shows a line to the user."""


class Launcher(Protocol):
    """The interface of a launcher's module."""

    def launch(self, where: str, request: LaunchRequest) -> None:
        """Start the agents. `where` is the value of `--on`.

        Raises:
            UserError: the cluster refuses the request, or cannot be reached.
        """


def launcher_for(where: str) -> Launcher:
    """Return the launcher for a value of `--on`: `slurm`, `ray` or `ray://ADDRESS`.

    Raises:
        UserError: the value does not name a launcher.
    """
    name = where.partition("://")[0]
    if name not in LAUNCHERS:
        raise UserError(
            f"invalid value of --on: {where!r}",
            why=f"choose from {', '.join(LAUNCHERS)}",
            hint=did_you_mean(name, LAUNCHERS),
        )
    return cast(Launcher, import_module(LAUNCHERS[name]))

"""Launchers start agents of one build on many machines; what the agents do is the build itself.

A launcher is a module with a function `launch`. To add one, write the module and name it in
`LAUNCHERS`. A launcher starts processes and no more: it keeps no state that the build needs, so
every agent may die, and so may the launcher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from tokenmill.errors import UserError
from tokenmill.run.recipe.options import Recipe
from tokenmill.suggestions import nearest

LAUNCHERS = {
    "slurm": "tokenmill.launch.slurm",
    "ray": "tokenmill.launch.ray",
}
"""The module of each launcher, by the word or the scheme that `--on` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What a launcher is asked to start."""

    recipe: Recipe
    command: tuple[str, ...]
    """`build INPUT ... --out OUT`: the command line of an agent, without what is the launcher's."""
    num_agents: int | None
    """One agent a machine; None: the launcher decides."""
    options: dict[str, Any]
    """Options that only one launcher has, by their names."""
    say: Callable[[str], None]
    """Called with each line to show to the user."""


class Launcher(Protocol):
    """The member of a launcher's module."""

    def launch(self, where: str, request: LaunchRequest) -> None:
        """Start the agents; `where` is the value of `--on`.

        Raises:
            UserError: the cluster refuses the request, or cannot be reached.
        """


def launcher_for(where: str) -> Launcher:
    """The launcher that a value of `--on` names: `slurm`, `ray` or `ray://address`.

    Raises:
        UserError: there is no such launcher.
    """
    name = where.partition("://")[0]
    if name not in LAUNCHERS:
        close = nearest(name, LAUNCHERS)
        raise UserError(
            f"{where!r} is not a value of --on",
            why=f"choose from {', '.join(LAUNCHERS)}",
            hint=f"did you mean {close}?" if close else "",
        )
    return cast(Launcher, import_module(LAUNCHERS[name]))

"""A registry of formats and places by name: built-in ones, and those of installed packages.

Recipes and datasets only contain names. A name is looked up in the built-in table first, then in
the entry points of installed packages, which are only read for names that are not built in. So
worker and parser processes find the same objects.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from tokenmill.core.errors import UserError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint  # costs each process 20 ms: imported when needed

T = TypeVar("T")


class Registry(Generic[T]):
    """Objects by name, each loaded on first use."""

    def __init__(self, group: str, kind: str, built_in: Mapping[str, str], protocol: type) -> None:
        """Create a registry.

        `built_in` has "module:class" for each name. Messages call a member `kind`, and each member
        must implement `protocol`.
        """
        self.built_in = tuple(built_in)
        self._group = group
        self._kind = kind
        self._own = built_in
        members = dict.fromkeys([*vars(protocol).get("__annotations__", ()), *vars(protocol)])
        self._members = [name for name in members if not name.startswith("_")]
        self._loaded: dict[str, T] = {}

    @functools.cached_property
    def registered(self) -> tuple[str, ...]:
        """The sorted names that installed packages register."""
        return tuple(sorted({entry.name for entry in self._entries} - {*self.built_in}))

    @functools.cached_property
    def _entries(self) -> tuple[EntryPoint, ...]:
        from importlib.metadata import entry_points

        return tuple(entry_points(group=self._group))

    def __contains__(self, name: str) -> bool:
        return name in self._own or name in self.registered

    def __getitem__(self, name: str) -> T:
        """Return the member with a name.

        Raises:
            UserError: the name is unknown, two packages register it, its package cannot be loaded,
                or the member does not implement the protocol.
        """
        if name not in self._loaded:
            own = self._own.get(name, "")
            module, _, kind = own.partition(":")
            loaded = getattr(import_module(module), kind)() if own else self._load_registered(name)
            self._loaded[name] = loaded
        return self._loaded[name]

    def _load_registered(self, name: str) -> T:
        found = {entry.value: entry for entry in self._entries if entry.name == name}
        if not found:
            names = ", ".join((*self.built_in, *self.registered))
            hint = f"install the package that registers it as one of {self._group!r}"
            raise UserError(f"unknown {self._kind} {name!r}", why=f"known: {names}", hint=hint)
        if len(found) > 1:
            why = f"the packages are {' and '.join(sorted(found))}"
            hint = "uninstall one of them"
            raise UserError(f"two packages register the {self._kind} {name!r}", why=why, hint=hint)
        value, entry = next(iter(found.items()))
        try:
            made = entry.load()()
            if lacking := [member for member in self._members if not hasattr(made, member)]:
                raise TypeError(f"{type(made).__name__!r} does not define {', '.join(lacking)}")
            return cast(T, made)
        except (Exception, SystemExit) as error:
            raise UserError(
                f"cannot load the {self._kind} {name!r}",
                where=value,
                why=f"{type(error).__name__}: {error}",
                hint="reinstall the package that registers it, or uninstall it",
            ) from error

"""What torchtitan 0.3.0 asks of a dataloader, for machines where it is not installed.

`Configurable` and `BaseDataLoader` check and do what torchtitan's own do, no more.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

HOME = "torchtitan.components.dataloader"
IS_INSTALLED = importlib.util.find_spec("torchtitan") is not None


class Configurable:
    """A component whose `Config` builds it."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config:
        _owner: ClassVar[type | None] = None

        def build(self, **kwargs: Any) -> Any:
            assert self._owner is not None
            own = {field.name for field in dataclasses.fields(self)}
            assert not own & kwargs.keys(), "arguments of build() overlap with those of Config"
            return self._owner(config=dataclasses.replace(self), **kwargs)

    def __init_subclass__(cls) -> None:
        config = cls.__dict__.get("Config")
        if config is not None:
            assert "__slots__" in config.__dict__
            assert all(field.kw_only for field in dataclasses.fields(config) if field.init)
            config._owner = cls


class BaseDataLoader(ABC, Configurable):
    """torchtitan's also inherits from the protocol Stateful, which has the two other methods."""

    @dataclasses.dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        dataset: str = ""
        dataset_path: str | None = None

    @abstractmethod
    def __iter__(self) -> Iterator[Any]: ...


STANDING_IN = () if IS_INSTALLED else ("torchtitan", "torchtitan.components", HOME)
for name in STANDING_IN:
    sys.modules[name] = types.ModuleType(name)
if STANDING_IN:
    sys.modules[HOME].BaseDataLoader = BaseDataLoader  # type: ignore[attr-defined]

from tokenmill.torchtitan import TokenmillDataLoader  # noqa: E402

for name in STANDING_IN:
    del sys.modules[name]  # other libraries look for it

__all__ = ["IS_INSTALLED", "TokenmillDataLoader"]

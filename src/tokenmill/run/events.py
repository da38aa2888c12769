"""Callbacks of a long run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tokenmill.core.records import Advance
from tokenmill.read.source import FetchListener, Source
from tokenmill.run.progress import Listener

P = TypeVar("P")


@dataclass(slots=True)
class RunEvents(Generic[P]):
    """Callbacks of a build or a count. All are optional.

    `on_prepared` is called once before the first unit, with a `P`. `on_engine` gets the name of
    each engine that is tried, and a remark if calibration rejected it.
    """

    on_prepared: Callable[[P], None] = lambda prepared: None
    on_engine: Callable[[str, str], None] = lambda engine, remark: None
    on_progress: Listener = lambda snapshot: None
    on_download: FetchListener = lambda progress: None
    on_compare: Callable[[Source], None] = lambda source: None
    """Called before the content of an input is compared because its modification time changed."""
    on_pack: Advance = lambda stage, done, total: None

"""What a caller may want to hear of a long run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tokenmill.read.places.place import FetchListener
from tokenmill.read.sources import Source
from tokenmill.records import Advance
from tokenmill.run.progress import Listener

P = TypeVar("P")


@dataclass(slots=True)
class RunEvents(Generic[P]):
    """Everything is optional; `P` is what a run has prepared before its first unit."""

    on_prepared: Callable[[P], None] = lambda prepared: None
    on_engine: Callable[[str, str], None] = lambda engine, remark: None
    on_progress: Listener = lambda snapshot: None
    on_download: FetchListener = lambda progress: None
    on_compare: Callable[[Source], None] = lambda source: None
    """The time of an input has changed, and its content is about to be compared."""
    on_pack: Advance = lambda stage, done, total: None

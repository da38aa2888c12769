"""An engine that a worker loads before the build knows all that it will ask of it.

The main process still resolves the recipe and loads the reference then. What was loaded is used
only where it is just what the setup asks for, of the very bytes that are stored for the task.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tokenmill.encode.engine import Engine
from tokenmill.encode.engine_ranking import load_engine
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.run.units.assignment import Setup
from tokenmill.run.units.tasks import CountTask


class Preload(msgspec.Struct, tag="preload", frozen=True, kw_only=True):
    """To a worker that waits: load an engine that it will probably be asked for."""

    descriptor: int
    """Of the file that holds the tokenizer, from its start."""
    num_bytes: int
    kind: str
    encoding: str
    control_tokens: bool
    engine: str
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class Preloaded:
    """An engine, and what it was made of."""

    order: Preload
    data: bytes
    engine: Engine
    seconds: float

    def engine_for(self, setup: Setup) -> Engine | None:
        """The engine, if it is what a setup asks for."""
        task, order = setup.task, self.order
        if isinstance(task, CountTask):
            return None
        asked = Preload(
            descriptor=order.descriptor,
            num_bytes=order.num_bytes,
            kind=task.tokenizer_kind,
            encoding=task.encoding,
            control_tokens=task.control_tokens,
            engine=setup.engine,
            cache_bytes=setup.cache_bytes,
        )
        if asked != order:
            return None
        stored = Path(task.tokenizer_dir, KINDS[order.kind].file_name)
        return self.engine if stored.read_bytes() == self.data else None


def preload(order: Preload) -> Preloaded | None:
    """Load an engine; None where that fails: the setup's own attempt tells why."""
    started = time.perf_counter()
    # Needed when the first unit ends. Engines that load let other threads run.
    threading.Thread(target=importlib.import_module, args=("pyarrow.parquet",), daemon=True).start()
    with contextlib.suppress(Exception):
        data = os.pread(order.descriptor, order.num_bytes, 0)
        file = TokenizerFile(order.kind, data, order.encoding)
        engine = load_engine(order.engine, file, order.control_tokens, order.cache_bytes)
        engine.encode(["a"])  # the first call of some takes longer than all that follow
        return Preloaded(order, data, engine, time.perf_counter() - started)
    return None

"""Load an engine in a worker while the main process still prepares the build.

A preloaded engine is used only if it is exactly the one that the setup asks for later, loaded from
the same bytes as the stored tokenizer.
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
    """To a waiting worker: load the engine that it will probably need."""

    descriptor: int
    """The descriptor of the file that begins with the tokenizer."""
    num_bytes: int
    kind: str
    encoding: str
    control_tokens: bool
    engine: str
    cache_bytes: int


@dataclass(frozen=True, slots=True)
class Preloaded:
    """An engine, with the order and the bytes that it was loaded from."""

    order: Preload
    data: bytes
    engine: Engine
    seconds: float

    def engine_for(self, setup: Setup) -> Engine | None:
        """Return the engine if it is the one that a setup asks for."""
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
    """Load an engine. None if that fails: loading it again for the setup raises the error."""
    started = time.perf_counter()
    # The first unit needs this module at its end. Engines release the GIL while they load.
    threading.Thread(target=importlib.import_module, args=("pyarrow.parquet",), daemon=True).start()
    with contextlib.suppress(Exception):
        data = os.pread(order.descriptor, order.num_bytes, 0)
        file = TokenizerFile(order.kind, data, order.encoding)
        engine = load_engine(order.engine, file, order.control_tokens, order.cache_bytes)
        engine.encode(["a"])  # the first call of some engines is slow
        return Preloaded(order, data, engine, time.perf_counter() - started)
    return None

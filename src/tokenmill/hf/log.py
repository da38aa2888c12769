"""The logger of the package and its level."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("tokenmill.hf")


@contextmanager
def logging_at(level: str) -> Iterator[None]:
    """Log at a level for one run, on standard error if the program has not set up logging."""
    before = logger.level
    handler = None if logger.hasHandlers() else logging.StreamHandler()
    logger.setLevel(level)
    if handler:
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.setLevel(before)
        if handler:
            logger.removeHandler(handler)

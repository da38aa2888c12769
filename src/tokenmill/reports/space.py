"""A check, before a build, that the dataset fits on the disk."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path

from tokenmill.core.errors import StorageError, TokenmillError
from tokenmill.core.values import size_text
from tokenmill.read.units import decompressed_bytes
from tokenmill.run.pipeline import BuildEvents
from tokenmill.run.tasks.encode import EncodeTask
from tokenmill.run.workspace import JOB_NAME
from tokenmill.store.cloud.names import is_remote

LOGGER = logging.getLogger(__name__)
PLENTY = 2
"""Free bytes per byte of input for which nothing is estimated: datasets take about half a byte."""
CERTAIN = 0.8
"""The share of the low end of an estimate that a dataset needs in any case."""


def checking_space(events: BuildEvents, tokenizer: object = None) -> BuildEvents:
    """Return events of a build that check the free space before the first unit.

    `tokenizer` is an object to encode with, which a recipe can only name.
    """

    def on_prepared(task: EncodeTask) -> None:
        _require_space(task, tokenizer)
        events.on_prepared(task)

    return replace(events, on_prepared=on_prepared)


def _require_space(task: EncodeTask, tokenizer: object) -> None:
    """Raise a StorageError if the dataset cannot fit on the disk; warn if it may not.

    Object stores, resumed builds, and inputs that are streamed or cannot be read are not checked.
    """
    folder = Path(task.recipe.out)
    if is_remote(task.recipe.out) or any(source.is_distant for source in task.sources):
        return
    if (folder / JOB_NAME).exists():  # an earlier attempt has written a part
        return
    free = shutil.disk_usage(folder.resolve()).free
    if free >= PLENTY * sum(map(decompressed_bytes, task.sources)):
        return
    from tokenmill.reports.estimate import estimate

    try:
        found = estimate(task.recipe, tokenizer)
    except TokenmillError:  # the build meets the same problem
        return
    why = f"the dataset needs about {size_text(found.disk_bytes)}, and {size_text(free)} are free"
    least = found.disk_bytes * found.tokens_interval[0] / max(found.tokens, 1)
    if CERTAIN * least > free:
        hint = "free some space, or choose a folder on another disk with --out"
        raise StorageError("not enough disk space", where=str(folder), why=why, hint=hint)
    if found.disk_bytes > CERTAIN * free:
        LOGGER.warning("the disk may become full: %s", why)

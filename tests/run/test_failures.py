"""Errors of a worker process, as the main process raises them again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tokenmill.core.errors import EngineError, InternalError, StorageError, TokenmillError
from tokenmill.run.executor import failure


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError(errno.EIO, os.strerror(errno.EIO), "/disk/file"), StorageError),
        (StorageError("cannot flush a shard"), StorageError),
        (MemoryError(), EngineError),
        (ZeroDivisionError(), InternalError),
    ],
)
def test_an_error_of_a_worker_keeps_its_kind(error: Exception, kind: type[TokenmillError]) -> None:
    assert type(failure("00000000-000000", error).error.rebuild()) is kind


def test_an_error_of_the_file_system_names_its_file() -> None:
    error = OSError(errno.EIO, os.strerror(errno.EIO), str(Path("/disk/file")))
    rebuilt = failure("00000000-000000", error).error.rebuild()
    assert (rebuilt.where, rebuilt.why) == ("/disk/file", os.strerror(errno.EIO))

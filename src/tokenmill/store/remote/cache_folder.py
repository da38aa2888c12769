"""Cache folders: marked as ours, so that nothing else is ever written to or deleted.

    DIR/tokenmill-cache.json      the mark
    DIR/DIGEST/                   a dataset, by the digest of its manifest
        manifest.json  tokenizer/  plans/     whole
        tokens/NAME.idx  .xxh3                whole, once a batch needed the shard
        tokens/NAME.bin                       holes, and blocks that were verified
        documents/NAME.parquet                whole, once it was needed
        .private.XXXXXXXX.tmp/tokens/...      token files of one loader with a limit

Nobody notes which blocks are there: a block counts once its digest is that of the dataset, and
every process compares it when it first uses it. So a cache may be copied, cut short or shared.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import shutil
from pathlib import Path

from tokenmill.errors import OutputConflictError, StorageError
from tokenmill.paths import local_path
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.files import lock_if_free, storage_errors

MARK = "tokenmill-cache.json"
_CONTENT = b'{"format": "tokenmill-cache", "format_version": 1}\n'
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


def claim_cache(folder: str | Path) -> Path:
    """A folder to cache in: a new or empty one, which is marked, or one that bears the mark.

    Raises:
        UserError: it cannot be a path.
        OutputConflictError: it holds something else.
        StorageError: it cannot be made.
    """
    path = local_path(folder, "a cache folder").absolute()
    with storage_errors("make the cache folder", path):
        if path.exists() and not path.is_dir():
            raise OutputConflictError("the cache is not a folder", where=str(path))
        path.mkdir(parents=True, exist_ok=True)
        names = {each.name for each in path.iterdir()}
        if names and MARK not in names:
            raise OutputConflictError(
                "the folder is not a cache of tokenmill",
                where=str(path),
                why=f"it contains other files and no {MARK}; tokenmill deletes files in its cache",
                hint="give a new or empty folder",
            )
        with contextlib.suppress(FileExistsError), open(path / MARK, "xb") as file:
            file.write(_CONTENT)
    return path


def make_holes(path: Path, size: int) -> None:
    """Make a file of holes, if there is none of this size.

    Raises:
        StorageError: the file system refuses it.
    """
    with storage_errors("make a file in the cache", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            if os.fstat(descriptor).st_size != size:
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)


def punch_holes(path: Path, blocks: list[int]) -> None:
    """Give the space of some blocks of 64 KiB of a file back to the file system.

    Raises:
        StorageError: the file system cannot do that.
    """
    with storage_errors("delete from the cache", path):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            for block in blocks:
                _punch(descriptor, block * BLOCK_BYTES, BLOCK_BYTES)
        finally:
            os.close(descriptor)


def private_folder(folder: Path) -> tuple[Path, int]:
    """A new folder in this one for a single process, and a descriptor that holds its lock.

    Those whose process has ended are removed first, where the file system has locks.

    Raises:
        StorageError: it cannot be made.
    """
    with storage_errors("make a folder in the cache", folder):
        for left in folder.glob(".private.*.tmp"):
            with contextlib.suppress(OSError):
                descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                try:
                    if lock_if_free(descriptor):
                        shutil.rmtree(left)
                finally:
                    os.close(descriptor)
        while True:
            made = folder / f".private.{secrets.token_hex(8)}.tmp"
            made.mkdir()
            descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):
                lock_if_free(descriptor)
            if made.exists():  # else another process took it for one that was left
                return made, descriptor
            os.close(descriptor)


def check_punching(folder: Path) -> None:
    """Raise a StorageError if blocks cannot be deleted from files in this folder."""
    path = folder / "probe"
    make_holes(path, BLOCK_BYTES)
    try:
        with storage_errors("write into the cache", path):
            path.write_bytes(bytes(BLOCK_BYTES))
        punch_holes(path, [0])
    except StorageError as error:
        raise StorageError(
            "this folder does not support a cache with a limit",
            where=str(folder),
            why=f"its file system cannot free parts of files: {error.why or error.what}",
            hint="use a folder on ext4, XFS, Btrfs or tmpfs, or omit cache_bytes",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _punch(descriptor: int, start: int, num_bytes: int) -> None:
    fallocate = getattr(_libc, "fallocate64", None)
    if fallocate is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, start, num_bytes):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))

"""Cache folders. They have a marker file, so that tokenmill never changes any other folder.

    DIR/tokenmill-cache.json      the marker
    DIR/DIGEST/                   a dataset, by the digest of its manifest
        manifest.json  tokenizer/  plans/     whole
        tokens/NAME.idx  .xxh3                whole, once a batch needed the shard
        tokens/NAME.bin                       sparse file with the verified blocks
        documents/NAME.parquet                whole, once it was needed
        .private.XXXXXXXX.tmp/tokens/...      token files of one loader with a limit

There is no list of cached blocks. A block is valid if its digest matches the dataset, and every
process checks this on first use. So a cache can be copied, truncated or shared.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
from pathlib import Path

from tokenmill.core.errors import OutputConflictError, StorageError
from tokenmill.core.paths import local_path
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.files import lock_if_free, remove_left, storage_errors

MARK = "tokenmill-cache.json"
_CONTENT = b'{"format": "tokenmill-cache", "format_version": 1}\n'
_KEEP_SIZE, _PUNCH_HOLE = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)


def claim_cache(folder: str | Path) -> Path:
    """Return the path of a cache folder: an existing one, or a new or empty one, which is marked.

    Raises:
        UserError: the path is not valid.
        OutputConflictError: the folder has other content.
        StorageError: the folder cannot be created.
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
    """Create an empty sparse file, unless the file already has this size.

    Raises:
        StorageError: the file system fails.
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
    """Free the disk space of some 64 KiB blocks of a file.

    Raises:
        StorageError: the file system does not support it.
    """
    with storage_errors("delete from the cache", path):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            for block in blocks:
                _punch(descriptor, block * BLOCK_BYTES, BLOCK_BYTES)
        finally:
            os.close(descriptor)


def private_folder(folder: Path) -> tuple[Path, int]:
    """Create a folder for a single process; return it with the descriptor that holds its lock.

    If the file system has locks, folders of ended processes are removed first.

    Raises:
        StorageError: the folder cannot be created.
    """
    with storage_errors("make a folder in the cache", folder):
        remove_left(folder / "private")
        while True:
            made = folder / f".private.{secrets.token_hex(4)}.tmp"
            made.mkdir()
            descriptor = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
            with contextlib.suppress(OSError):
                lock_if_free(descriptor)
            if made.exists():  # else another process removed it as abandoned
                return made, descriptor
            os.close(descriptor)


def check_punching(folder: Path) -> None:
    """Raise a StorageError if the file system cannot free blocks of files in this folder."""
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

"""Atomic file operations, and checks that paths stay inside their folder."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tokenmill.core.errors import OutputConflictError, StorageError, VerificationError
from tokenmill.core.values import size_text
from tokenmill.store.ownership import refuse_strangers

REPLACED = "replaced"
"""The name of an old output until the new one has its name."""
PIECE_BYTES = 1 << 18
"""Of one write. On one machine, larger writes took up to eight times the CPU time of pieces; we
suppose that Linux then looked for larger pages in fragmented memory, and did not prove it."""

FICLONE = 0x40049409
"""The request of ioctl_ficlone(2): share all blocks of another file, copied when written to."""


def write_pieces(file: BinaryIO, data: Any) -> None:
    """Write contiguous bytes of any size.

    Raises:
        OSError: the file system refused them.
    """
    view = memoryview(data).cast("B")
    for start in range(0, len(view), PIECE_BYTES):
        file.write(view[start : start + PIECE_BYTES])


class ArrowSink:
    """A file that Arrow writes a stream to, in pieces.

    The first `num_there` bytes of the stream are in the file already.
    """

    def __init__(self, file: BinaryIO, num_there: int = 0) -> None:
        self._file, self._left = file, num_there
        self.closed = False

    def write(self, data: Any) -> int:
        """Write all but the bytes that are in the file."""
        view = memoryview(data).cast("B")
        there = min(self._left, len(view))
        self._left -= there
        write_pieces(self._file, view[there:])
        return len(view)

    def flush(self) -> None:
        """Whoever opened the file flushes it."""

    def tell(self) -> int:
        """Where the file is written."""
        return self._file.tell()


def require_space(folder: Path, num_bytes: int, what: str) -> None:
    """Raise a StorageError if `what` needs more bytes than the disk of a folder has free."""
    free = shutil.disk_usage(folder).free
    if num_bytes > free:
        why = f"{what} needs {size_text(num_bytes)}, and {size_text(free)} are free"
        hint = "free some space, or choose a folder on another disk with --out"
        raise StorageError("not enough disk space", where=str(folder), why=why, hint=hint)


def shared(file: Path, name: Path) -> bool:
    """Give the content of a file a second name without a copy; False if that is not possible.

    A clone, which later changes of either file do not reach, comes before a hard link.
    """
    try:
        with open(file, "rb") as old, open(name, "xb") as new:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
    except OSError:
        name.unlink(missing_ok=True)
    else:
        return True
    try:
        os.link(file, name)
    except OSError:
        return False
    return True


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn an OSError of the enclosed block into a StorageError that names `path`."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, doing, path) from error


def storage_error(error: OSError, doing: str, path: Path | None = None) -> StorageError:
    """Return a StorageError with a hint; `path` defaults to the path in the OSError."""
    no_locks = (
        "file locks do not work here, as on some network mounts: start its lock service, "
        "or choose a folder on a local file system"
    )
    hints = {
        errno.ENOSPC: "free some space and run the same command again",
        errno.EROFS: "choose an output folder on a writable file system",
        errno.EACCES: "check the owner and the permissions of the folder",
        errno.EDQUOT: "free some quota and run the same command again",
        errno.ENOLCK: no_locks,
        errno.EOPNOTSUPP: no_locks,
        errno.ENOSYS: no_locks,
    }
    return StorageError(
        f"cannot {doing}",
        where=str(path or error.filename or ""),
        why=error.strerror or str(error),
        hint=hints.get(error.errno or 0, "run the same command again"),
    )


def fsync_path(path: Path) -> int:
    """Flush a file, or the entries of a folder, to disk, and return its size in bytes."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file so that a crash leaves either the old or the new content."""
    with storage_errors("write", path), written_beside(path, data) as temporary:
        rename_flushed(temporary, path)


@contextmanager
def written_beside(path: Path, data: bytes, *, durable: bool = True) -> Iterator[Path]:
    """Provide a file with these bytes next to `path`, which is removed unless it is renamed.

    A missing folder is created. Without `durable`, the file is not flushed.

    Raises:
        OSError: the file system fails.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with _new_file(temporary) as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _new_file(path: Path) -> BinaryIO:
    try:
        return open(path, "xb")
    except FileNotFoundError:  # asked only now, because a network mount takes long to answer
        path.parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb")


def rename_flushed(old: Path, new: Path) -> None:
    """Rename a flushed file within its folder, replacing any file with the new name.

    Raises:
        OSError: the file system fails.
    """
    os.replace(old, new)
    fsync_path(new.parent)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Provide a temporary path; the file becomes `path` if the block ends without an error.

    Raises:
        StorageError: the file system fails.
    """
    with contextlib.ExitStack() as stack:
        with storage_errors("write", path):
            unfinished = stack.enter_context(temporary_folder(path)) / path.name
        yield unfinished
        with storage_errors("write", path):
            fsync_path(unfinished)
            rename_flushed(unfinished, path)


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Provide a hidden folder next to `path`, to be renamed to it; otherwise it is removed.

    The folder is locked while its process runs. Folders that no running process holds are removed
    first. On a file system without locks, folders of other processes are kept.

    Raises:
        OSError: the folder cannot be created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_left(path)
    with contextlib.ExitStack() as stack:
        while True:
            folder = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            folder.mkdir()
            if _lock_new(folder, stack):
                break
        yield folder


def remove_left(path: Path) -> None:
    """Remove temporary folders next to `path` that no running process holds."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 8}.tmp"):
        with contextlib.suppress(OSError), locked_folder(left) as free:
            if free:
                shutil.rmtree(left)


@contextmanager
def held_beside(out: Path, manifest: str, is_ours: Callable[[str], object]) -> Iterator[Path]:
    """Create and lock the folder in which one process makes an output; it stays after the block.

    `manifest` is the last file of a complete output. `is_ours` is called with the names of files in
    the folder, which its user may remove.

    Raises:
        OutputConflictError: another process holds it, it holds files of someone else, or an old
            output cannot be renamed.
        OSError: the folder cannot be created.
    """
    folder = unfinished_beside(out)
    refuse_fixed(out, "choose a new folder, which may be in it, or run it from another folder")
    with contextlib.ExitStack() as stack:
        while True:  # another process can remove the folder when it finishes
            folder.mkdir(parents=True, exist_ok=True)
            if _lock_new(folder, stack):
                break
            if folder.exists():
                raise OutputConflictError(
                    "another process is writing to the output folder",
                    where=str(out),
                    hint="wait until it has finished, or stop it",
                )
        refuse_strangers(folder, is_ours)
        restore(out, manifest)
        yield folder


def remove_leftover(
    out: Path,
    is_ours: Callable[[str], object],
    may_go: Callable[[Path], bool] = lambda folder: True,
) -> None:
    """Remove what a killed process left beside a complete output, unless a process holds it.

    `may_go` tells whether another run could still need it.
    """
    folder = unfinished_beside(out)
    with contextlib.suppress(OSError, OutputConflictError), locked_folder(folder) as is_free:
        refuse_strangers(folder, is_ours)
        if is_free and may_go(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _lock_new(folder: Path, stack: contextlib.ExitStack) -> bool:
    """Lock a new folder; False if another process has removed it as abandoned, or holds it."""
    try:
        return stack.enter_context(locked_folder(folder))
    except OSError:  # the file system has no locks
        return True


@contextmanager
def locked_folder(folder: Path) -> Iterator[bool]:
    """Hold a folder's lock; yields False if another process holds it or the folder is missing.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        yield False
        return
    try:
        is_ours = lock_if_free(descriptor) and os.fstat(descriptor).st_nlink > 0
        yield is_ours
    finally:
        os.close(descriptor)


def lock_if_free(descriptor: int) -> bool:
    """Lock a file until it is closed; return False if another process holds the lock.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def exchange(old: Path, new: Path) -> bool:
    """Swap two names atomically; return False if the system does not support it.

    Python has no function for this. With two renames, a kill between them would hide the old file.
    """
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    at_cwd, exchanging = -100, 2
    names = os.fsencode(old), os.fsencode(new)
    if renameat2(at_cwd, names[0], at_cwd, names[1], exchanging) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
        return False
    raise OSError(code, os.strerror(code), str(new))


def unfinished_beside(out: Path) -> Path:
    """Return the folder in which an output is made before it gets its name."""
    return out.with_name(f".{out.name}.unfinished")


def refuse_fixed(out: Path, hint: str) -> None:
    """Raise an OutputConflictError if an existing output folder cannot be renamed."""
    why = ""
    if out.is_mount() or Path.cwd().is_relative_to(out.resolve()):
        why = "it is a mount point, or contains the current folder"
    elif out.exists() and not os.access(out.parent, os.W_OK):
        why = "the folder that it is in cannot be written to"
    if why:
        name = "the output folder cannot be renamed"
        raise OutputConflictError(name, where=str(out), why=why, hint=hint)


def take_name(new: Path, out: Path) -> None:
    """Give a complete folder its name. An old folder moves to `unfinished_beside`, with `new`.

    Where the system cannot exchange names, a kill between two renames leaves neither under the
    name; `restore` puts the old one back.

    Raises:
        OSError: the file system fails.
    """
    if out.exists():
        if exchange(new, out):
            fsync_path(out.parent)
            return
        remove_folder(new.parent / REPLACED)
        os.replace(out, new.parent / REPLACED)
    try:
        rename_flushed(new, out)
    finally:
        restore(out)


def restore(out: Path, manifest: str = "") -> None:
    """Put back a folder that a killed `take_name` has moved away, if it has a `manifest`."""
    replaced = unfinished_beside(out) / REPLACED
    if (replaced / manifest).exists() and not out.exists():
        os.replace(replaced, out)


def remove_folder(folder: Path) -> None:
    """Remove a folder and its content, if it exists; a link to a folder is kept.

    Raises:
        OSError: some of its content cannot be removed.
    """
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


def path_inside(folder: Path, name: str) -> Path:
    """Return the resolved path of `name` below `folder`.

    Raises:
        VerificationError: the name, or a link in its path, leads outside the folder.
    """
    root = folder.resolve()
    try:
        path = (folder / name).resolve()
    except (ValueError, RuntimeError, OSError):  # a zero byte, or circular links
        path = root.parent
    if not path.is_relative_to(root):
        raise leads_out(str(folder), name)
    return path


def sizes_inside(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, int | None]]:
    """Yield the size in bytes of each file below a folder, with one system call per file.

    Names are not trusted. Folders are resolved once, and files only if they are links. The size is
    None if no regular file has this name.

    Raises:
        VerificationError: a name, or a link on the way, leads out of the folder.
    """
    parents: dict[str, Path] = {}
    for name in names:
        parent, slash, leaf = name.rpartition("/")
        if leaf in ("", ".", "..") or (slash and not parent):
            raise leads_out(str(folder), name)
        if parent not in parents:
            parents[parent] = path_inside(folder, parent)
        try:
            status = os.lstat(f"{parents[parent]}/{leaf}")
            if stat.S_ISLNK(status.st_mode):
                status = path_inside(folder, name).stat()
        except ValueError as error:  # a zero byte, or half of a surrogate pair
            raise leads_out(str(folder), name) from error
        except OSError:  # it is missing, or the name is not valid
            yield name, None
        else:
            yield name, status.st_size if stat.S_ISREG(status.st_mode) else None


def leads_out(location: str, name: str) -> VerificationError:
    """Return the error for a file name that is not trusted."""
    return VerificationError(
        f"the file name {name!r} points outside the dataset",
        where=location,
        why="a dataset may only name files in its own folder",
        hint="do not open this dataset; get a new copy from its source",
    )

"""A folder seen through FUSE as over NFS, run as a script: ROOT MOUNT PROBABILITY.

Now and then link() and rename() do what they should and answer wrongly, as when an answer is lost
and the client sends its request again (open(2), NOTES, NFS).
"""
# ruff: noqa: PTH101, PTH102, PTH104, PTH106, PTH108, PTH208

from __future__ import annotations

import errno
import os
import random
import sys
from typing import Any

from fuse import FUSE, FuseOSError, Operations

ATTRIBUTES = [f"st_{name}" for name in "atime ctime mtime gid uid mode nlink size ino".split()]


class LossyFolder(Operations):
    def __init__(self, root: str, probability: float) -> None:
        self.root, self.probability = root, probability
        self.random = random.Random(3)

    def inner(self, path: str) -> str:
        return self.root + path

    def lose_answer(self, code: int) -> None:
        if self.random.random() < self.probability:
            raise FuseOSError(code)

    def link(self, target: str, source: str) -> None:
        os.link(self.inner(source), self.inner(target))
        self.lose_answer(errno.EEXIST)  # the request sent again finds the first one's link

    def rename(self, old: str, new: str) -> None:
        os.rename(self.inner(old), self.inner(new))
        self.lose_answer(errno.ENOENT)  # the request sent again finds nothing to rename

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        status = os.lstat(self.inner(path))
        return {name: getattr(status, name) for name in ATTRIBUTES}

    def readdir(self, path: str, fh: int) -> list[str]:
        return [".", "..", *os.listdir(self.inner(path))]

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(self.inner(path), mode)

    def rmdir(self, path: str) -> None:
        os.rmdir(self.inner(path))

    def unlink(self, path: str) -> None:
        os.unlink(self.inner(path))

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return os.open(self.inner(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC, mode)

    def open(self, path: str, flags: int) -> int:
        return os.open(self.inner(path), flags)

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return os.pread(fh, size, offset)

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(fh, data, offset)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        os.truncate(self.inner(path), length)

    def flush(self, path: str, fh: int) -> int:
        return 0

    def fsync(self, path: str, datasync: int, fh: int) -> None:
        os.fsync(fh)

    def release(self, path: str, fh: int) -> None:
        os.close(fh)

    def utimens(self, path: str, times: tuple[float, float] | None = None) -> None:
        os.utime(self.inner(path), times)

    def chmod(self, path: str, mode: int) -> None:
        os.chmod(self.inner(path), mode)


if __name__ == "__main__":
    root, mount, probability = sys.argv[1:]
    options = {"use_ino": True, "attr_timeout": 0, "entry_timeout": 0}
    folder = LossyFolder(root, float(probability))
    FUSE(folder, mount, nothreads=True, foreground=True, **options)

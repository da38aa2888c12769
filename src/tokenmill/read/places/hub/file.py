"""One file of a data set on the Hub, as a listing or a record names it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenmill.errors import DataError
from tokenmill.paths import is_safe_path
from tokenmill.read.places.hub.names import HubName, is_commit, parse_hub_name

_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a data set at one commit."""

    repo: str
    commit: str
    path: str
    num_bytes: int
    etag: str
    """SHA-256 of its bytes where they are kept apart (LFS), else its SHA-1 as a blob of git."""

    @property
    def origin(self) -> str:
        """Where it comes from, for records: hf://datasets/OWNER/NAME@COMMIT/PATH."""
        return str(HubName(self.repo, self.commit, self.path))

    @property
    def problem(self) -> str:
        """Why there can be no such file, "" where there can: paths, commits and digests that others
        have written become names of files.
        """
        if not is_safe_path(self.path):
            return f"{self.path!r} points outside its dataset or is not a valid file name"
        if not (is_commit(self.commit) and _ETAG.fullmatch(self.etag) and self.num_bytes >= 0):
            return f"{self.path!r} has {self.num_bytes} bytes and digest {self.etag!r}"
        return ""


def recorded_file(origin: str, num_bytes: int, etag: str) -> HubFile:
    """The file that a record of an earlier read names.

    Raises:
        DataError: there can be no such file.
    """
    name = parse_hub_name(origin)
    file = HubFile(name.repo, name.revision, name.path, num_bytes, etag)
    if file.problem:
        raise DataError(
            "a record does not name a valid file on the Hub", where=origin, why=file.problem
        )
    return file

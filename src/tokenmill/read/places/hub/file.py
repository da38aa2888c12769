"""A file of a dataset on the Hub, as a listing or a record describes it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenmill.core.errors import DataError
from tokenmill.core.paths import is_safe_path
from tokenmill.read.places.hub.names import HubName, is_commit, parse_hub_name

_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a dataset at a commit."""

    repo: str
    commit: str
    path: str
    num_bytes: int
    etag: str
    """SHA-256 of the bytes for LFS files, else the SHA-1 of the git blob."""

    @property
    def origin(self) -> str:
        """The address for records: hf://datasets/OWNER/NAME@COMMIT/PATH."""
        return str(HubName(self.repo, self.commit, self.path))

    @property
    def problem(self) -> str:
        """Why the file is not valid, or "".

        Paths, commits and digests become names of local files, so they are not trusted.
        """
        if not is_safe_path(self.path):
            return f"{self.path!r} points outside its dataset or is not a valid file name"
        if not (is_commit(self.commit) and _ETAG.fullmatch(self.etag) and self.num_bytes >= 0):
            return f"{self.path!r} has {self.num_bytes} bytes and digest {self.etag!r}"
        return ""


def recorded_file(origin: str, num_bytes: int, etag: str) -> HubFile:
    """Return the file that a record of an earlier build names.

    Raises:
        DataError: the record does not name a valid file.
    """
    name = parse_hub_name(origin)
    file = HubFile(name.repo, name.revision, name.path, num_bytes, etag)
    if file.problem:
        raise DataError(
            "a record does not name a valid file on the Hub", where=origin, why=file.problem
        )
    return file

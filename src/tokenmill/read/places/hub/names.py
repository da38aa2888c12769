"""Names of datasets on the Hub, and their files: hf://datasets/OWNER/NAME[@REVISION][/PATH]."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

from tokenmill.core.errors import UserError
from tokenmill.core.paths import is_safe_path
from tokenmill.core.suggestions import nearest

PREFIX = "hf://"
DEFAULT_REVISION = "main"

_SPECIAL_REVISION = re.compile(r"refs/(?:convert/[\w.-]+|pr/\d+)(?=/|$)")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REPO_PART = re.compile(r"\w(?:[\w.-]*\w)?")


class Alias(NamedTuple):
    """The dataset and path that an alias stands for."""

    repo: str
    path: str
    """A folder or glob in the repository."""


ALIASES = {
    "c4-en": Alias("allenai/c4", "en/c4-train.*.json.gz"),
    "cosmopedia-v2": Alias("HuggingFaceTB/smollm-corpus", "cosmopedia-v2"),
    "fineweb": Alias("HuggingFaceFW/fineweb", "data"),
    "fineweb-10bt": Alias("HuggingFaceFW/fineweb", "sample/10BT"),
    "fineweb-100bt": Alias("HuggingFaceFW/fineweb", "sample/100BT"),
    "fineweb-350bt": Alias("HuggingFaceFW/fineweb", "sample/350BT"),
    "fineweb-edu": Alias("HuggingFaceFW/fineweb-edu", "data"),
    "fineweb-edu-10bt": Alias("HuggingFaceFW/fineweb-edu", "sample/10BT"),
    "fineweb-edu-100bt": Alias("HuggingFaceFW/fineweb-edu", "sample/100BT"),
    "fineweb-edu-350bt": Alias("HuggingFaceFW/fineweb-edu", "sample/350BT"),
    "tinystories": Alias("roneneldan/TinyStories", "data/train-*.parquet"),
    "wikipedia-en": Alias("wikimedia/wikipedia", "20231101.en"),
    "wikitext-103": Alias("Salesforce/wikitext", "wikitext-103-raw-v1/train-*.parquet"),
}
"""Aliases. The revision is `main` unless the user names one, so an alias pins no commit."""


@dataclass(frozen=True, slots=True)
class HubName:
    """A dataset or a part of it, as the user names it."""

    repo: str
    """OWNER/NAME, or only NAME for the oldest datasets."""
    revision: str = DEFAULT_REVISION
    path: str = ""
    """A folder, file or glob; "" for the whole dataset."""

    def __str__(self) -> str:
        revision = self.revision
        if not _SPECIAL_REVISION.fullmatch(revision):
            revision = quote(revision, safe="")
        is_plain = self.revision == DEFAULT_REVISION and ("/" in self.repo or not self.path)
        at = "" if is_plain else f"@{revision}"
        return f"{PREFIX}datasets/{self.repo}{at}" + (f"/{self.path}" if self.path else "")


def is_commit(revision: str) -> bool:
    """Return whether a revision is a full commit hash, which never changes its meaning."""
    return _COMMIT.fullmatch(revision) is not None


def parse_hub_name(name: str) -> HubName:
    """Parse a name, and resolve aliases.

    In "hf://datasets/a/b", a is the owner. A path in a dataset without an owner needs a revision:
    "hf://datasets/b@main/data".

    Raises:
        UserError: the name is not valid.
    """
    kind, _, rest = name.removeprefix(PREFIX).partition("/")
    if kind != "datasets":
        return _parse_alias(name)
    before, at, after = rest.partition("@")
    if at and before.count("/") <= 1:
        special = _SPECIAL_REVISION.match(after)
        revision = special[0] if special else unquote(after.partition("/")[0])
        path = after[special.end() + 1 :] if special else after.partition("/")[2]
    else:
        owner, _, after = rest.partition("/")
        second, _, path = after.partition("/")
        before, revision = f"{owner}/{second}" if second else owner, DEFAULT_REVISION
    path = path.strip("/")
    named = all(map(_REPO_PART.fullmatch, before.split("/")))
    if not (named and is_safe_path(revision) and (not path or is_safe_path(path))):
        why = "expected hf://datasets/OWNER/NAME[@REVISION][/PATH]"
        raise UserError("the input does not name a dataset on the Hub", where=name, why=why)
    return HubName(before, revision, path)


def _parse_alias(name: str) -> HubName:
    short, at, revision = name.removeprefix(PREFIX).partition("@")
    written = "/" not in revision or _SPECIAL_REVISION.fullmatch(revision)
    if short in ALIASES and (not at or (written and is_safe_path(unquote(revision)))):
        alias = ALIASES[short]
        return HubName(alias.repo, unquote(revision) or DEFAULT_REVISION, alias.path)
    close = nearest(short, ALIASES)
    if not close and re.fullmatch(r"(?!models/|spaces/|buckets/)[^/]+/[^/]+", short):
        close = f"datasets/{short}"
    hint = f"did you mean {PREFIX}{close}? " if close else ""
    raise UserError(
        "the input does not name a dataset on the Hub",
        where=name,
        why="expected hf://datasets/OWNER/NAME, or hf://ALIAS[@REVISION] with one of "
        f"{', '.join(ALIASES)}",
        hint=f"{hint}models, spaces and buckets cannot be inputs",
    )


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

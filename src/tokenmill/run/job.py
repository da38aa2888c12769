"""The job of a run: resolved once from the options, and sent unchanged to every worker.

A job holds what decides the result: numbers, names and policies, never objects. Its sources and
units travel with each assignment, because there may be millions of them.

A later attempt must agree with the job, with the names and sizes of inputs (if only a modification
time differs, the content is compared), and with the versions of libraries that affect its output.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from tokenmill.core.installed import installed_version
from tokenmill.encode.engine_ranking import MEMO, NATIVE
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.words.splits import Split
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.source import AUTO, Source
from tokenmill.run.machine import PYTHON_BATCH_BYTES, Resources
from tokenmill.store.policies import Policies

MAX_SHOWN = 12


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How much a unit or a run may still write."""

    documents: int | None = None
    tokens: int | None = None


NO_LIMIT = Limit()


class TokenizerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The tokenizer of a job. Workers load its file from the output."""

    kind: str
    encoding: str
    sha256: str
    control_tokens: bool
    """Whether special tokens inside text are control tokens."""
    largest_id: int
    unk_id: int | None
    special_tokens: list[str]
    prefix_ids: list[int]
    """The tokens before each document."""


class Encode(msgspec.Struct, tag="encode", frozen=True, kw_only=True):
    """Encode documents into shards."""

    tokenizer: TokenizerSpec
    eos_id: int
    pad_id: int | None
    policies: Policies
    engine: str
    """The engine as the recipe names it."""

    @property
    def decides(self) -> dict[str, Any]:
        """What a later attempt must agree with."""
        return {
            "tokenizer": self.tokenizer.sha256,
            "eos_id": self.eos_id,
            "pad_id": self.pad_id,
            "prefix_ids": self.tokenizer.prefix_ids,
            "policies": msgspec.to_builtins(self.policies),
            "engine": self.engine,
        }


class Count(msgspec.Struct, tag="count", frozen=True, kw_only=True):
    """Count the words of documents into sorted runs."""

    split: Split
    by: str | None
    """The grouping as the recipe names it."""
    groups: list[str]
    """The group of each source by index. Empty if groups come from `column`, or there is one."""
    column: str
    """The kept column with the groups. "" if groups do not come from the documents."""
    min_count: int
    policies: dict[str, Any]

    @property
    def decides(self) -> dict[str, Any]:
        """What a later attempt must agree with."""
        names = ("split", "by", "groups", "min_count", "policies")
        return {name: msgspec.to_builtins(getattr(self, name)) for name in names}


class Measure(msgspec.Struct, tag="measure", frozen=True, kw_only=True):
    """Measure how a tokenizer encodes documents."""

    tokenizer: TokenizerSpec
    words: str
    """The rule that cuts texts into words."""
    sequence_lengths: list[int]
    groups: list[str]
    """The group of each source by index. Empty if groups come from `column`, or there is one."""
    column: str
    """The kept column with the groups. "" if groups do not come from the documents."""
    offsets_share: float
    """The share of documents to encode again with offsets, among those whose tokens do not spell
    their text."""

    @property
    def decides(self) -> dict[str, Any]:
        """What a later attempt must agree with."""
        return {"tokenizer": self.tokenizer.sha256}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does."""

    task: Encode | Count | Measure
    fields: Fields
    engines: tuple[str, ...]
    """The exact engines, best first. Empty if the named engine cannot be used."""
    limit: Limit = NO_LIMIT
    """The limit of the whole run."""
    commits: dict[str, str] | UnsetType = UNSET
    """The commits of remote data sets with names that can move, such as branches."""
    is_slow: bool = False
    """Whether a megabyte takes seconds, so that units and batches must be small."""
    is_watched: bool = False
    """Whether the tokenizer has unknown steps. Then documents are only encoded in worker processes,
    which can be killed."""

    @property
    def decides(self) -> dict[str, Any]:
        """What a later attempt must agree with, apart from inputs and libraries."""
        commits = {} if self.commits is UNSET else {"commits": self.commits}
        return {**commits, **self.task.decides}


class Setup(msgspec.Struct, tag="setup", frozen=True, kw_only=True):
    """What a worker gets once: the job, the engine to try, and its place on this machine."""

    job: Job
    engine: str
    resources: Resources
    growth_bytes: int
    """By how much a worker may grow before a fresh one replaces it."""
    audit_share: float
    """The share of documents that the reference encodes as well."""
    audits: bool = False
    """Whether workers audit their own units; if not, the main process does."""
    scratch: str
    """The folder of files of unfinished units."""
    out: str
    """The store of finished units."""
    tokenizer_dir: str = ""
    tokenizer_source: str = ""
    """The description that creates a Python tokenizer in a worker. "" for other tokenizers."""
    report_seconds: float = 0.1
    """The shortest time between progress messages of a worker."""

    @property
    def batch_bytes(self) -> int:
        """The record bytes to read, parse and encode at a time."""
        return PYTHON_BATCH_BYTES if self.job.is_slow else self.resources.batch_bytes


class InputIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The name, size and version of an input."""

    name: str
    bytes: int
    etag: str | UnsetType = UNSET
    """The version of a remote file."""
    mtime_ns: int | UnsetType = UNSET
    """The modification time of a local file."""
    text_field: str | UnsetType = UNSET
    """The field with the text, if a pattern chose one for this file."""


def input_identity(source: Source) -> InputIdentity:
    """Return the identity of an input, which a resumed run must agree with."""
    return InputIdentity(
        name=source.name,
        bytes=source.num_bytes,
        text_field=source.text_field or UNSET,
        etag=source.version if isinstance(source.version, str) else UNSET,
        mtime_ns=UNSET if isinstance(source.version, str) else source.version,
    )


def versions() -> dict[str, str]:
    """Return the versions of Python and of all libraries that can affect a dataset."""
    names = ("tokenmill", "tokenizers", "fastokens", "tiktoken", "sentencepiece")
    found = {"python": platform.python_version()}
    for name in (*names, "jinja2", "msgspec", "numpy", "numba", "pyarrow", "xxhash"):
        try:
            found[name] = installed_version(name)
        except ModuleNotFoundError:
            continue
    return found


def deciding_libraries(kind: str, engine: str, sources: Iterable[Source]) -> frozenset[str]:
    """Return the libraries that affect the bytes of a build: those that read, encode and write.

    `kind` is the kind of the tokenizer.
    """
    names = {"tokenmill", "pyarrow", KINDS[kind].library}
    formats = {source.format for source in sources} - {AUTO}
    names.update(*(FORMATS[name].libraries for name in formats))
    if engine in {NATIVE, MEMO}:
        names |= {"numba", "python"}  # its kernels, and its Unicode tables
    return frozenset(names | {engine} & {"fastokens"})


def version_differences(
    old: Mapping[str, str], new: Mapping[str, str], names: Iterable[str]
) -> Iterator[tuple[str, str, str]]:
    """Yield (library, version then, version now) for those of `names` that differ.

    Libraries that an old version of this code did not record are skipped.
    """
    for name in sorted(names):
        if name in old and old[name] != new.get(name):
            yield name, old[name], new.get(name, "none")


def shown(lines: Sequence[str]) -> str:
    """Join differences to the `why` of an error."""
    more = len(lines) - MAX_SHOWN
    rest = [f"... and {more} more"] if more > 0 else []
    return "\n       ".join([*lines[:MAX_SHOWN], *rest])

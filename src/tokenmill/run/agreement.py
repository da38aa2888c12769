"""Check whether this run may resume or reuse what the output holds."""

from __future__ import annotations

import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from tokenmill.core.errors import (
    DataError,
    InputChangedError,
    OutputConflictError,
    VerificationError,
)
from tokenmill.read.documents import ReadDigests, Reader
from tokenmill.read.formats.format import Extent
from tokenmill.read.source import Source
from tokenmill.read.sources import pinned_names
from tokenmill.read.units import Stream, cut_units, feed_stream
from tokenmill.run.executor import Receipt
from tokenmill.run.job import InputIdentity, shown, version_differences
from tokenmill.run.journal.ledger import Ledger, read_receipts
from tokenmill.run.task import Task
from tokenmill.run.workspace import JOB_NAME, Workspace
from tokenmill.store.canonical import canonical_json, sealed, unseal
from tokenmill.store.manifest import RUN_NAME, Run, SourceEntry
from tokenmill.store.objects.object_store import ObjectStore, open_record

AGREED = "work/agreed"
"""Records of inputs with new modification times and unchanged contents."""
JOB_VARIABLE = "TOKENMILL_JOB"
"""The environment variable with the job that an agent was started for. Launchers set it."""

BATCH_BYTES = 1 << 20
CHANGED = "its content changed"
STOPPED_AT_LIMIT = "its content cannot be compared, because the build stopped at a limit"
LEFT_OUT = "its content cannot be compared, because it was left out as damaged"

OnCompare = Callable[[Source], None]
"""Called before the content of an input is compared."""
Part = tuple[int, int | None]
"""The [start, stop) of an extent."""
Digests = tuple[str, str]
"""The digests of the bytes and of the rows of a part. "" if there are none."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored start of a run, which never changes."""

    job: str
    """A unique name of the run."""
    identity: msgspec.Raw
    digest: str = ""


def agree_on_start(workspace: Workspace, task: Task[Any], on_compare: OnCompare) -> str:
    """Store the start of a run, or compare it with the stored one. Returns the job's name.

    Raises:
        InputChangedError: they differ. The message lists the differences.
        OutputConflictError: this is not the run that the agent was started for.
        VerificationError: the stored start is damaged.
    """
    store, identity = workspace.store, task.identity()
    wanted = os.environ.get(JOB_VARIABLE, "") if task.takes_agents else ""
    data = store.read(JOB_NAME)
    stored = None if data is None else read_job(data, f"{store.location}/{JOB_NAME}")
    if stored is None and not wanted:
        stored = stored_start(store, identity)
    if wanted and (stored is None or stored.job != wanted):
        raise OutputConflictError(
            "the output is not the one that this agent was started for",
            where=store.location,
            why=f"{JOB_VARIABLE} is {wanted}; the output holds "
            + (f"the job {stored.job}" if stored else "no job"),
            hint="the output must be a bucket, or a folder that all machines share",
        )
    assert stored is not None
    before = msgspec.json.decode(stored.identity)
    if lines := _differences(workspace, task, before, identity, on_compare):
        old, new = before.get("commits", {}), identity.get("commits", {})
        pinned = pinned_names(task.recipe.inputs, old, new)
        moved = f"name the old commit, as in {', '.join(pinned)}; or " if pinned else ""
        raise InputChangedError(
            f"cannot resume the {task.noun}: its inputs, options or libraries have changed",
            where=store.location,
            why=shown(lines),
            hint=f"{moved}undo the change, choose another --out, or start again with --overwrite",
        )
    return stored.job


def stored_start(store: ObjectStore, identity: Mapping[str, Any]) -> JobRecord:
    """Store the start of a run, unless there is one. Returns the stored one.

    Raises:
        VerificationError: the stored start is damaged.
    """
    raw = msgspec.Raw(msgspec.json.encode(identity))
    record = sealed(JobRecord(job=secrets.token_hex(8), identity=raw))
    data = store.create(JOB_NAME, canonical_json(record))
    return read_job(data, f"{store.location}/{JOB_NAME}")


def read_job(data: bytes, where: str) -> JobRecord:
    """Return the stored start of a run; raise a VerificationError if it is damaged."""
    try:
        return unseal(data, JobRecord, where)
    except VerificationError as error:
        error.hint = "start again with --overwrite, or choose another --out"
        raise


def _differences(
    workspace: Workspace,
    task: Task[Any],
    before: dict[str, Any],
    now: dict[str, Any],
    on_compare: OnCompare,
) -> list[str]:
    """Return how a stored start differs from this one, with the libraries used so far."""
    store = workspace.store
    known = f"{AGREED}/{xxhash.xxh3_128_hexdigest(msgspec.json.encode(now['inputs']))}.json"
    ledger = Ledger(store, ())
    compared: list[int] = []

    def change_of(index: int) -> str:
        if index in ledger.quarantined:
            return LEFT_OUT
        if store.size(known) is not None:
            return ""
        compared.append(index)
        ledger.receipts = ledger.receipts or read_receipts(store)
        on_compare(task.sources[index])
        if not (stored := _parts_read(ledger.receipts, index)):
            return ""
        return _change(task, index, lambda found: stored.items() <= found.items())

    lines = identity_differences(before, now, change_of)
    if ledger.engine:  # before the first receipt, no library has affected the output
        old, names = before["versions"], task.deciding(ledger.engine)
        changed = version_differences(old, now["versions"], names)
        lines += [f"{name}: was version {then}, is {now_}" for name, then, now_ in changed]
    if compared and not lines:  # only times differ: remember it, as comparing reads the inputs
        store.create(known, b"{}\n")
    return lines


def agree_on_finished(
    workspace: Workspace,
    task: Task[Any],
    sources: Sequence[SourceEntry],
    on_compare: OnCompare,
    *,
    limited: bool,
) -> tuple[Run, tuple[str, ...]]:
    """Compare a finished output with a task; `sources` are from its manifest.

    Returns the record of its run, and a remark on each library that affected the output and has
    another version now. Such a version is not an error, because the output is finished.

    Raises:
        OutputConflictError: it was made from something else. The message lists the differences.
    """
    run = open_record(workspace.store, RUN_NAME, workspace.store.read(RUN_NAME), Run)
    now = task.identity()

    def change_of(index: int) -> str:
        entry = sources[index]
        if entry.quarantined:
            return LEFT_OUT
        if limited:
            return STOPPED_AT_LIMIT
        on_compare(task.sources[index])
        rows = (run.row_digests or {}).get(str(index)) or _joined([])
        return _change(
            task,
            index,
            lambda found: (
                _joined(each for each, _ in found.values()) == entry.xxh3_128
                and _joined(each for _, each in found.values()) == rows
            ),
        )

    if lines := identity_differences(run.identity, now, change_of):
        kind = workspace.kind
        raise OutputConflictError(
            f"the output folder holds {kind.other}",
            where=workspace.location,
            why=shown(lines),
            hint=f"choose another folder, or replace the {kind.noun} with --overwrite",
        )
    changed = version_differences(run.versions, now["versions"], task.deciding(run.engine))
    return run, tuple(f"built with {name} {old}; {new} is installed" for name, old, new in changed)


def _parts_read(receipts: Mapping[str, Receipt], index: int) -> dict[Part, Digests]:
    """Return the digests of what finished units have read of a source."""
    key = str(index)
    return {
        (extent.start, extent.stop): (
            receipt.read_digests.get(key, ""),
            (receipt.row_digests or {}).get(key, ""),
        )
        for receipt in receipts.values()
        for extent in receipt.extents
        if extent.source == index and not receipt.limited
    }


def _change(task: Task[Any], index: int, is_same: Callable[[dict[Part, Digests]], bool]) -> str:
    """Read a source as a build does. Returns how its parts have changed, or ""."""
    source, found = task.sources[index], dict[Part, Digests]()
    try:
        for item in cut_units([source], task.fields, task.unit_bytes):
            if not isinstance(item, Stream):
                found |= {(each.start, each.stop): _digest(task, each) for each in item.extents}
                continue
            with tempfile.TemporaryDirectory() as folder:
                parts = feed_stream(item, source, task.fields, Path(folder), lambda key: True)
                for unit, part in parts:
                    extent = unit.extents[0]
                    found[extent.start, extent.stop] = _digest(task, extent, part)
                    if part:
                        part.unlink()
    except DataError as error:
        return f"{CHANGED} ({error.why})"
    return "" if is_same(found) else CHANGED


def _digest(task: Task[Any], extent: Extent, part: Path | None = None) -> Digests:
    digests = ReadDigests(task.sources, task.fields)
    reader = Reader(task.sources, task.fields, BATCH_BYTES)
    reader.observe = digests.observe
    for batch in reader.read(extent, part):
        digests.add_rows(batch)
    index = str(extent.source)
    return digests.of_bytes().get(index, ""), digests.of_rows().get(index, "")


def _joined(digests: Iterable[str]) -> str:
    """Return the digest of digests."""
    return xxhash.xxh3_128_hexdigest(b"".join(map(bytes.fromhex, digests)))


def identity_differences(
    stored: Mapping[str, Any], now: Mapping[str, Any], change_of: Callable[[int], str]
) -> list[str]:
    """Return the differences between a stored identity and the current one, except libraries.

    `change_of` compares the content of an input, given its index, and returns what has changed, or
    "". It is called only if everything else is equal, because it reads the whole input.

    Raises:
        msgspec.ValidationError: The stored data is not an identity.
    """
    found = [
        line
        for key in now
        if key not in ("inputs", "versions")
        for line in differences(stored.get(key), now[key], key)
    ]
    inputs = msgspec.convert(stored.get("inputs", []), list[InputIdentity])
    found += _input_differences(inputs, now["inputs"])
    if found:
        return found
    pairs = enumerate(zip(inputs, now["inputs"], strict=True))
    touched = [(index, a, b) for index, (a, b) in pairs if a.mtime_ns != b.mtime_ns]
    return [
        f"{b.name}: {change}; it has the same size, and was modified {_when(b)}"
        for index, _, b in touched
        if (change := change_of(index))
    ]


def _when(known: InputIdentity) -> str:
    seconds = known.mtime_ns / 1e9 if isinstance(known.mtime_ns, int) else 0
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _input_differences(old: Sequence[InputIdentity], new: Sequence[InputIdentity]) -> Iterator[str]:
    """Yield all differences between inputs except modification times."""
    names = [[known.name for known in side] for side in (old, new)]
    if names[0] != names[1]:
        yield from (f"{name}: is no longer an input" for name in names[0] if name not in names[1])
        yield from (f"{name}: is a new input" for name in names[1] if name not in names[0])
        if sorted(names[0]) == sorted(names[1]):
            yield f"the order of the inputs: was {names[0]}, is {names[1]}"
        return
    for a, b in zip(old, new, strict=True):
        if a.bytes != b.bytes:
            yield f"{b.name}: had {a.bytes:,} bytes, has {b.bytes:,}"
        elif a.text_field != b.text_field:
            yield f"{b.name}: a pattern of --text-field matches it in only one of the two runs"
        elif a.etag != b.etag:
            yield f"{b.name}: its content changed (its remote version is different)"


def differences(old: Any, new: Any, name: str) -> Iterator[str]:
    """Yield the differences between two JSON values. An absent key equals a null."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key), new.get(key), f"{name}.{key}")
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differences(a, b, f"{name}[{index}]")
    elif old != new:
        yield f"{name}: was {old!r}, is {new!r}"

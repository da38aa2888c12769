"""Receipts of finished units. A unit with a receipt is never run again."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from tokenmill.core.errors import DataError, InternalError
from tokenmill.run.messages import RECEIPTS, Receipt, receipt_name
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.files import unfinished_beside
from tokenmill.store.layout import part_name
from tokenmill.store.manifest import Counts
from tokenmill.store.objects.object_store import ObjectStore, create_record, open_record
from tokenmill.store.objects.opening import open_store

_KEY = re.compile(r"(\d{8}-\d{6}(-limit)?)\.json")
_SOURCE = re.compile(r"(\d{8})\.json")

T = TypeVar("T", bound=msgspec.Struct)


def write_receipt(store: ObjectStore, receipt: Receipt) -> Receipt:
    """Store a receipt, which completes its unit. Returns the stored receipt.

    Raises:
        InternalError: another agent has run the unit with a different result.
    """
    name = receipt_name(receipt.key)
    first = create_record(store, name, receipt)
    if not first.is_like(receipt):
        raise InternalError(
            "a unit that ran twice gave two different results",
            where=f"unit {receipt.key}",
            why=f"the second result differs from the receipt {store.location}/{name}",
            hint="compare the tokenizers, libraries and memory of the machines",
        )
    return first


def read_receipts(store: ObjectStore, known: Collection[str] = ()) -> dict[str, Receipt]:
    """Return the receipts of all units by key, except those that are `known`."""
    return _read(store, RECEIPTS, finished_keys(store).difference(known), Receipt)


def finished_keys(store: ObjectStore) -> set[str]:
    """Return the keys of all units with a receipt."""
    return _listed(store, RECEIPTS, _KEY)


def read_by_source(
    store: ObjectStore, folder: str, kind: type[T], known: Collection[int]
) -> dict[int, T]:
    """Return the records of a folder, one for a source, by its index, except `known` ones."""
    keys = {key for key in _listed(store, folder, _SOURCE) if int(key) not in known}
    return {int(key): record for key, record in _read(store, folder, keys, kind).items()}


def _listed(store: ObjectStore, folder: str, pattern: re.Pattern[str]) -> set[str]:
    found = (pattern.fullmatch(name.removeprefix(f"{folder}/")) for name in store.sizes(folder))
    return {match[1] for match in found if match}


def _read(store: ObjectStore, folder: str, keys: Iterable[str], kind: type[T]) -> dict[str, T]:
    names = {f"{folder}/{key}.json": key for key in keys}
    return {
        names[name]: open_record(store, name, data, kind)
        for name, data in store.read_all(names)
        if data is not None
    }


def without_lost_files(store: ObjectStore, receipts: Mapping[str, Receipt]) -> dict[str, Receipt]:
    """Return receipts with complete files. Removes the others, so that their units run again."""
    wanted = {
        part_name(key, file.name): file.bytes
        for key, receipt in receipts.items()
        for file in receipt.files
    }
    folders = {name.rpartition("/")[0] for name in wanted}
    sizes: dict[str, int] = {}
    for folder in folders:
        sizes |= store.sizes(folder)
    missing = {name for name, num_bytes in wanted.items() if sizes.get(name) != num_bytes}
    missing = {name for name in missing if store.size(name) != wanted[name]}  # listings may be late
    lost = {
        key
        for key, receipt in receipts.items()
        if any(part_name(key, file.name) in missing for file in receipt.files)
    }
    store.remove(map(receipt_name, sorted(lost)))
    return {key: receipt for key, receipt in receipts.items() if key not in lost}


def num_finished_units(out: str | Path) -> int:
    """Return the number of units that a resumed build will not run again."""
    places = [out] if is_remote(out) else [out, unfinished_beside(Path(out).resolve()) / "new"]
    return sum(len(finished_keys(open_store(str(place)))) for place in places)


def judge_rejected(
    totals: Counts, max_bad: float, store: ObjectStore, files: Sequence[str]
) -> None:
    """Raise a DataError if more records were rejected than the recipe allows.

    `files` are the names of the files with rejected records, in the order of the inputs.
    """
    if totals.num_rejected <= max_bad * max(totals.records, 1):
        return
    share = totals.num_rejected / max(totals.records, 1)
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in totals.rejected.items())
    data = store.read(files[0]) or b""
    first = msgspec.json.decode(data[: data.index(b"\n")])
    hint = f"look at {store.location}/rejected/*.jsonl"
    if totals.num_rejected == totals.records:
        hint += "; every record is bad, so check --text-field or --chat, and --format if given"
    else:
        allowed = _just_above(share)
        hint += f", then run the same command with --max-bad {allowed}: nothing is encoded again"
    raise DataError(
        f"{totals.num_rejected:,} of {totals.records:,} records are bad ({share:.4%})",
        where=f"the first is {first['source']}, position {first['position']:,}: "
        + ", ".join(filter(None, (first["reason"], first["detail"]))),
        why=f"{reasons}; the limit is {max_bad:.4%}",
        hint=hint,
    )


def _just_above(share: float) -> str:
    """Return a percentage slightly above a share, and below 100%."""
    allowed = min(share * 1.01, (1 + share) / 2)
    shown = (f"{allowed:.{digits}%}" for digits in range(4, 17))
    return next(each for each in shown if share <= float(each[:-1]) / 100 < 1)

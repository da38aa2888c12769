"""Receipts: what is known of a finished unit. A unit with a receipt is never run again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from tokenmill.errors import DataError
from tokenmill.run.units.assignment import Receipt
from tokenmill.store.canonical import read_sealed, write_sealed
from tokenmill.store.manifest import Counts


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How many units a stream became."""

    num_parts: int
    digest: str = ""


def write_receipt(folder: Path, receipt: Receipt) -> None:
    """Store a receipt: from now on the unit is done."""
    write_sealed(folder / f"{receipt.key}.json", receipt)


def read_receipts(folder: Path, shards: Path) -> dict[str, Receipt]:
    """All receipts by key, without those whose shard files are not there in full."""
    receipts = {}
    for path in sorted(folder.glob("????????-??????.json")):
        receipt = read_sealed(path, Receipt)
        sizes = {file.name: shards / f"{receipt.key}.{file.name}" for file in receipt.files}
        whole = all(
            sizes[file.name].is_file() and sizes[file.name].stat().st_size == file.bytes
            for file in receipt.files
        )
        if whole:
            receipts[receipt.key] = receipt
        else:
            path.unlink()
    return receipts


def num_finished_units(out: str | Path) -> int:
    """Units that a later attempt at an unfinished build will not run again."""
    return len(list(Path(out, "work", "receipts").glob("????????-??????.json")))


def write_stream_end(folder: Path, source: int, num_parts: int) -> None:
    """Remember that a stream was read to its end."""
    write_sealed(folder / f"stream-{source:08d}.json", StreamEnd(num_parts=num_parts))


def read_stream_ends(folder: Path) -> dict[int, int]:
    """Number of parts of every stream that was read to its end, by source."""
    return {
        int(path.stem.removeprefix("stream-")): read_sealed(path, StreamEnd).num_parts
        for path in sorted(folder.glob("stream-*.json"))
    }


def judge_rejected(totals: Counts, max_bad: float, files: Sequence[Path]) -> None:
    """Raise a DataError if more records were set aside than the recipe allows.

    `files` hold the records, in the order of the inputs.
    """
    if totals.num_rejected <= max_bad * max(totals.records, 1):
        return
    share = totals.num_rejected / max(totals.records, 1)
    reasons = ", ".join(f"{reason}: {count:,}" for reason, count in totals.rejected.items())
    with open(files[0], "rb") as lines:
        first = msgspec.json.decode(lines.readline())
    allowed = share * 1.01
    again = f", then run the same command with --max-bad {allowed:.4%}: nothing is encoded again"
    raise DataError(
        f"{totals.num_rejected:,} of {totals.records:,} records are bad ({share:.4%})",
        where=f"the first is {first['source']}, position {first['position']:,}: "
        + ", ".join(filter(None, (first["reason"], first["detail"]))),
        why=f"{reasons}; the limit is {max_bad:.4%}",
        hint=f"look at {files[0].parent}/*.jsonl" + (again if allowed < 1 else ""),
    )

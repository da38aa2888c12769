"""A worker that sleeps instead of encoding, for `fleet.py`."""

from __future__ import annotations

import os
import time

from tokenmill.core.child import Parent
from tokenmill.run.executor import (
    Advanced,
    Calibrate,
    Calibrated,
    Command,
    Encoded,
    Loaded,
    Outcome,
    Receipt,
    Tally,
)
from tokenmill.store.manifest import Counts, ExtentEntry, FileEntry

SIZES = {"bin": 537_000_000, "idx": 2_700_000, "xxh3": 66_000, "parquet": 3_000_000}
TIMES = {"read": 1.0, "encode": 7.0, "write": 1.0, "fsync": 0.1}


def main() -> None:
    """Answer assignments after a time, with the receipt of a unit of 512 MiB."""
    seconds, audited = float(os.environ["SLEEP_SECONDS"]), int(os.environ["SLEEP_AUDITED"])
    parent = Parent(Command)
    setup, _ = parent.receive()
    parent.send(Loaded(0.1))
    while True:
        command, _ = parent.receive()
        if isinstance(command, Calibrate):
            parent.send(Calibrated())
            continue
        key, end = command.unit.key, time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, setup.report_seconds))
            tally = Tally(source=int(key[:8]), position=9, bytes=9, documents=9, tokens=9)
            parent.send(Advanced(key, tally))
        parent.send(Encoded(key))
        sent = 0 if setup.audits else audited
        texts, ids = ["a text " * 500] * sent, [[1, 2, 3] * 300] * sent
        receipt = receipt_of(key, audited)
        parent.send(Outcome(receipt=receipt, audit_texts=texts, audit_ids=ids, seconds=TIMES))


def receipt_of(key: str, audited: int) -> Receipt:
    """The receipt of a unit."""
    source = str(int(key[:8]))
    counts = Counts(
        records=134_000, record_bytes=512 << 20, documents=134_000, document_bytes=512 << 20,
        tokens=134_217_728,
    )  # fmt: skip
    return Receipt(
        key=key,
        extents=[ExtentEntry(source=int(source), start=0, stop=512 << 20)],
        files=[FileEntry(name=n, bytes=b, xxh3_128="0" * 32) for n, b in SIZES.items()],
        documents=134_000,
        tokens=134_217_728,
        counts={source: counts},
        read_digests={source: "0" * 32},
        audited=audited,
        excluded=[],
        seconds=9.1,
    )

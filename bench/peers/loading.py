"""What the loaders in this folder have in common: how they are called, timed and checked.

    python load_NAME.py convert ROWS.bin LENGTH FOLDER      rows of LENGTH uint16 ids each, in a row
    python load_NAME.py epoch FOLDER --batch-size 8 --workers 2 --epochs 3 [--check]
    python load_NAME.py stop FOLDER --batch-size 8 --at 0.5 --state FILE
    python load_NAME.py resume FOLDER --batch-size 8 --state FILE

`epoch` walks through whole epochs in a bare loop. A batch counts as int64 input_ids of shape
(batch, length); what a loader needs beyond its own iteration to get there is on its clock.
`--check` looks at every row, off the clock: the sum of hashes of rows is equal where two loaders
serve the same rows, in any order. `stop` and `resume` are two processes: the second continues
from the first one's state, and prints whether it got the batches that came next in the first.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

AFTER = 4
"""Batches that are compared after a stop."""


class Peer:
    """What a script in this folder fills in."""

    def convert(self, rows: np.ndarray, folder: Path) -> None:
        """Write `rows`, shape (num_rows, length), in the peer's own format."""
        raise NotImplementedError

    def open(self, folder: Path, batch_size: int, workers: int) -> Any:
        """An iterable of batches."""
        raise NotImplementedError

    def ids(self, batch: Any) -> Any:
        """The int64 tensor of shape (batch, length) that a model would be given."""
        raise NotImplementedError

    def save(self, loader: Any, num_batches: int) -> Any:  # noqa: ARG002 - some need the number
        """The state after `num_batches`."""
        return loader.state_dict()

    def load(self, loader: Any, state: Any) -> None:
        """Make `loader` go on from a state."""
        loader.load_state_dict(state)


def row_hashes(ids: np.ndarray) -> np.ndarray:
    """A 64-bit hash of each row of ids, shape (n,)."""
    weights = np.random.default_rng(0).integers(0, 2**63, ids.shape[1], dtype=np.uint64) | 1
    sums = ((ids.astype(np.uint64) + np.uint64(1)) * weights).sum(axis=1, dtype=np.uint64)
    return (sums ^ (sums >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)


def fingerprint(batches: Iterator[np.ndarray]) -> dict[str, int]:
    """Rows, tokens, and the sum of the rows' hashes; further that of distinct rows."""
    hashes, tokens = [np.empty(0, np.uint64)], 0
    for ids in batches:
        hashes.append(row_hashes(ids))
        tokens += ids.size
    everything = np.concatenate(hashes)
    distinct = np.unique(everything)
    return {
        "rows": len(everything),
        "tokens": tokens,
        "sum": int(everything.sum(dtype=np.uint64)),
        "distinct_rows": len(distinct),
        "distinct_sum": int(distinct.sum(dtype=np.uint64)),
    }


def time_epochs(loader: Any, ids_of: Callable[[Any], Any], epochs: int) -> list[dict[str, Any]]:
    """Seconds of whole epochs, and to the first batch of each, start of workers included."""
    found = []
    for _ in range(epochs):
        rows = tokens = 0
        first = 0.0
        started = time.perf_counter()
        for batch in loader:
            ids = ids_of(batch)
            rows += ids.shape[0]
            tokens += ids.shape[0] * ids.shape[1]
            first = first or time.perf_counter() - started
        seconds = time.perf_counter() - started
        found.append({"seconds": seconds, "first": first, "rows": rows, "tokens": tokens})
    return found


def main(peer: Peer) -> None:
    """Run the command that the command line asks for, and print its result as JSON."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    convert = commands.add_parser("convert")
    convert.add_argument("rows", type=Path)
    convert.add_argument("length", type=int)
    convert.add_argument("folder", type=Path)
    for name in ("epoch", "stop", "resume"):
        command = commands.add_parser(name)
        command.add_argument("folder", type=Path)
        command.add_argument("--batch-size", type=int, default=8)
        command.add_argument("--workers", type=int, default=0)
        command.add_argument("--epochs", type=int, default=3)
        command.add_argument("--check", action="store_true")
        command.add_argument("--at", type=float, default=0.5)
        command.add_argument("--state", type=Path)
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # some peers talk
        result = globals()[f"_{options.command}"](peer, options)
    print(json.dumps(result))


def _convert(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    rows = np.memmap(options.rows, "<u2", "r").reshape(-1, options.length)
    started = time.perf_counter()
    peer.convert(rows, options.folder)
    size = sum(path.stat().st_size for path in options.folder.rglob("*") if path.is_file())
    return {"seconds": time.perf_counter() - started, "bytes": size}


def _epoch(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    started = time.perf_counter()
    loader = peer.open(options.folder, options.batch_size, options.workers)
    opened = time.perf_counter() - started
    if options.check:
        return fingerprint(peer.ids(batch).numpy() for batch in loader)
    return {"opened": opened, "epochs": time_epochs(loader, peer.ids, options.epochs)}


def _stop(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    loader = peer.open(options.folder, options.batch_size, options.workers)
    num_batches = int(options.at * len(loader))
    iterator = iter(loader)
    for _ in range(num_batches):
        next(iterator)
    state = peer.save(loader, num_batches)
    after = [row_hashes(peer.ids(next(iterator)).numpy()).tolist() for _ in range(AFTER)]
    rest = sum(len(peer.ids(batch)) for batch in iterator) + sum(map(len, after))
    options.state.write_bytes(pickle.dumps((state, after, rest)))
    return {"batches": num_batches, "state_bytes": len(pickle.dumps(state)), "rest": rest}


def _resume(peer: Peer, options: argparse.Namespace) -> dict[str, Any]:
    state, expected, expected_rest = pickle.loads(options.state.read_bytes())
    started = time.perf_counter()
    loader = peer.open(options.folder, options.batch_size, options.workers)
    peer.load(loader, state)
    iterator = iter(loader)
    found = [row_hashes(peer.ids(next(iterator)).numpy()).tolist()]
    seconds = time.perf_counter() - started
    for _ in range(AFTER - 1):
        found.append(row_hashes(peer.ids(next(iterator)).numpy()).tolist())
    rest = sum(len(peer.ids(batch)) for batch in iterator) + sum(map(len, found))
    return {
        "seconds": seconds,
        "equal": found == expected,
        "rest": rest,
        "expected_rest": expected_rest,
    }

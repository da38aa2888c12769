"""Compare the planning speed of tokenmill, TRL and seqpacker, on lengths alone.

Lengths are lognormal(6.2, 1.1) from a seed, rounded, at least 1 (mean 904, median 493). All split
long documents into full sequences and a rest, and pack by best-fit decreasing, so all make the same
number of sequences if all documents are in one window:

- tokenmill global: cut and pack everything as one window, into flat arrays of segments;
- tokenmill local: the same with windows of 10,000 sequences, including figures and a written plan;
- seqpacker: `Packer(L, "obfd").pack_flat(pieces)`, without the time to split documents;
- TRL planning: the loop of its `pack_dataset`, copied from its source, on lengths alone;
- TRL pack_dataset: the function itself with strategy bfd_split, which also moves the tokens.

Every run is a separate process. Only tokenmill runs sizes over 10^7.

    sh bench/peers/setup.sh PEERS
    python bench/packing.py --peers PEERS --work WORK
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import measure

HERE = Path(__file__).resolve().parent
PEER_LIMITS = {"seqpacker": 10**7, "TRL planning": 10**7, "TRL pack_dataset": 10**5}
MEAN_LENGTH = 904


def draw(count: int, path: Path) -> None:
    """Write lengths as int32, a million at a time."""
    rng = np.random.default_rng(0)
    out = np.lib.format.open_memmap(path, "w+", "<i4", (count,))
    for start in range(0, count, 10**6):
        size = min(10**6, count - start)
        out[start : start + size] = np.clip(np.rint(rng.lognormal(6.2, 1.1, size)), 1, None)
    out.flush()


def plan(path: str, length: int, *, local: bool) -> None:
    """Plan once in this process, and print how long each part took."""
    from tokenmill.kernels.interpreted import MOST_STEPS
    from tokenmill.packing.figures import Ledger
    from tokenmill.packing.options import PackOptions
    from tokenmill.packing.window import Window, pack_window
    from tokenmill.store.plan import PlanWriter

    lengths = np.load(path, mmap_mode="r")
    options = PackOptions(sequence_length=length)
    window_documents = 10_000 * length // MEAN_LENGTH if local else len(lengths)
    count = min(len(lengths), MOST_STEPS + 1)
    warm = np.asarray(lengths[:count])
    Ledger(options).add(pack_window(Window(warm, np.arange(count, dtype=np.int32)), options))
    ledger = Ledger(options)
    seconds = {"pack": 0.0, "figures": 0.0, "write": 0.0}
    sequences = 0

    def timed(part: str, function: Callable[[], object]) -> object:
        started = time.perf_counter()
        result = function()
        seconds[part] += time.perf_counter() - started
        return result

    with (
        tempfile.TemporaryDirectory(dir=Path(path).parent) as folder,
        PlanWriter(Path(folder) / "plan", len(lengths)) as writer,
    ):
        for first in range(0, len(lengths), window_documents):

            def packed_window(first: int = first) -> object:
                part = np.array(lengths[first : first + window_documents])
                chosen = np.arange(len(part), dtype=np.int32)
                return pack_window(Window(part, chosen), options)

            packed = timed("pack", packed_window)
            sequences += len(packed.sequences)
            if local:
                timed("figures", lambda packed=packed: ledger.add(packed))
                timed(
                    "write",
                    lambda packed=packed, first=first: writer.append(packed.sequences, first, 1),
                )
        if local:
            timed("figures", ledger.figures)
            timed("write", lambda: writer.finish("", {}, {}, False))
    print(json.dumps({"seconds": seconds["pack"], "sequences": sequences, "parts": seconds}))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--peers", type=Path, help="folder of environments by peers/setup.sh")
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--sequence-length", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plan", metavar="LENGTHS", help=argparse.SUPPRESS)
    parser.add_argument("--local", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.plan:
        plan(options.plan, options.sequence_length, local=options.local)
        return
    options.work.mkdir(parents=True, exist_ok=True)
    print(measure.machine(), measure.versions(["tokenmill", "numpy", "numba"]))
    for size in map(int, options.sizes):
        compare(size, options)


def compare(size: int, options: argparse.Namespace) -> None:
    path = options.work / f"lengths-{size}.npy"
    if not path.is_file():
        draw(size, path)
    length = str(options.sequence_length)
    own = [sys.executable, __file__, "--work", str(options.work), "--plan", str(path)]
    own += ["--sequence-length", length]
    commands = {"tokenmill global": own, "tokenmill local": [*own, "--local"]}
    if options.peers is not None:
        for name, environment, script, *more in (
            ("seqpacker", "seqpacker", "seqpacker_obfd.py"),
            ("TRL planning", "trl", "trl_bfd.py"),
            ("TRL pack_dataset", "trl", "trl_bfd.py", "--whole"),
        ):
            python = options.peers / environment / "bin" / "python"
            if size <= PEER_LIMITS[name] and python.exists():
                command = [str(python), str(HERE / "peers" / script), str(path), length, *more]
                commands[name] = command

    def once(command: list[str]) -> Callable[[], tuple[dict, measure.Run]]:
        def run() -> tuple[dict, measure.Run]:
            measured = measure.run(command)
            return json.loads(measured.output.strip().splitlines()[-1]), measured

        return run

    runs = measure.interleave(
        {name: once(command) for name, command in commands.items()}, options.rounds
    )
    best = [found["seconds"] for found, _ in runs["tokenmill global"]]
    rows = []
    for name, group in runs.items():
        seconds = [found["seconds"] for found, _ in group]
        parts = group[0][0].get("parts", {})
        rows.append(
            [
                name,
                f"{statistics.median(seconds):.4f}",
                f"{statistics.median(seconds) / size * 1e9:.0f}",
                f"{max(run.peak_bytes for _, run in group) / 1e9:.2f}",
                f"{group[0][0]['sequences']:,}",
                f"{measure.ratio(seconds, best):.2f}",
                ", ".join(f"{part} {value:.2f}" for part, value in parts.items() if value),
            ]
        )
    print(f"\n## {size:,} documents, sequences of {length}\n")
    header = ["planner", "seconds", "ns a document", "peak GB", "sequences", "x global", "parts, s"]
    print(measure.table(header, rows), flush=True)


if __name__ == "__main__":
    main()

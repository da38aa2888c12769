"""Measure how long a training step waits for its batch if the dataset is behind a slow network.

A web server on this machine answers each request after `--latency-ms`. A training step is a wait of
`--step-ms`. Contenders take turns, each in a separate process: the local dataset, and an empty
cache with no steps or `--ahead` steps fetched in advance, with and without a limit. The digests of
all batches are compared.

    python bench/remote_loader.py --dataset CORPUS
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

import measure
import tokenmill
from loader_runs import make_plan


async def serve(root: Path, latency_seconds: float) -> None:
    """Answer GET and HEAD for files below a folder, whole or in part; print the port first."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                await asyncio.sleep(latency_seconds)
                method, target, _ = head.split(" ", 2)
                writer.write(_answer(root / unquote(target).lstrip("/"), method, head))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _answer(path: Path, method: str, head: str) -> bytes:
    if not path.is_file():
        return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
    size = path.stat().st_size
    asked = re.search(r"range: bytes=(\d+)-(\d+)", head, re.IGNORECASE)
    first, last = (int(asked[1]), min(int(asked[2]), size - 1)) if asked else (0, size - 1)
    lines = [
        "HTTP/1.1 206 Partial Content" if asked else "HTTP/1.1 200 OK",
        f"Content-Length: {last + 1 - first}",
        f'ETag: "{size:x}"',
        "Last-Modified: Sun, 22 Nov 2026 02:00:00 GMT",
        "Accept-Ranges: bytes",
        *([f"Content-Range: bytes {first}-{last}/{size}"] if asked else []),
    ]
    body = b""
    if method == "GET":
        with open(path, "rb") as file:
            file.seek(first)
            body = file.read(last + 1 - first)
    return "\r\n".join([*lines, "", ""]).encode() + body


def train(place: str, how: dict[str, Any], plan: str, steps: int, step_ms: float) -> dict[str, Any]:
    """Waits for batches in seconds, and what they cost."""
    warm = tokenmill.open(how.pop("compiled_with")).batches(plan, batch_size=32, seed=1)
    next(iter(warm))  # compiled code is loaded
    started, cpu = time.perf_counter(), time.process_time()
    batches = iter(tokenmill.open(place, **how).batches(plan, batch_size=32, seed=1))
    opened = time.perf_counter() - started
    waits, digest = [], hashlib.sha256()
    for _ in range(steps):
        before = time.perf_counter()
        batch = next(batches)
        waits.append(time.perf_counter() - before)
        digest.update(np.ascontiguousarray(batch["input_ids"]).data)
        time.sleep(step_ms / 1000)
    own = time.process_time() - cpu
    del batches
    return {
        "opened": opened,
        "waits": waits,
        "cpu": own,
        "fetcher": _cpu_of_ended(),
        "digest": digest.hexdigest(),
    }


def _cpu_of_ended() -> float:
    """CPU seconds of the fetcher, which ends with its loader."""
    import gc

    gc.collect()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(*arguments: object) -> dict[str, Any]:
    command = [sys.executable, __file__, "--train", json.dumps(arguments)]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, text=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dataset", type=Path)
    parser.add_argument("--sequence-length", type=int, default=2048)
    parser.add_argument("--latency-ms", type=float, default=100)
    parser.add_argument("--step-ms", type=float, default=100)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--ahead", type=int, default=8)
    parser.add_argument("--cache-bytes", type=int, default=64 << 20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(Path(options.serve), options.latency_ms / 1000))
    elif options.train:
        print(json.dumps(train(*json.loads(options.train))))
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Contenders in turns, as a table."""
    print(measure.machine(), measure.versions(["tokenmill", "obstore", "numpy"]))
    folder = options.dataset.resolve()
    plan = make_plan(folder, options.sequence_length)
    serving = [sys.executable, __file__, "--serve", str(folder.parent)]
    serving += ["--latency-ms", str(options.latency_ms)]
    with subprocess.Popen(serving, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        remote = f"http://127.0.0.1:{int(server.stdout.readline())}/{folder.name}"
        contenders: dict[str, tuple[str, dict[str, Any]]] = {
            "folder": (str(folder), {}),
            "nothing ahead": (remote, {"prefetch_steps": 0}),
            f"{options.ahead} steps ahead": (remote, {"prefetch_steps": options.ahead}),
            "the same, limited": (
                remote,
                {"prefetch_steps": options.ahead, "cache_bytes": options.cache_bytes},
            ),
        }
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
        try:
            for _ in range(options.rounds):
                for name, (place, how) in contenders.items():
                    with tempfile.TemporaryDirectory() as cache:
                        cached = {"cache": cache, **how} if place == remote else how
                        given = {"compiled_with": str(folder), **cached}
                        found[name].append(run(place, given, plan, options.steps, options.step_ms))
        finally:
            server.terminate()
    report(found)


def report(found: dict[str, list[dict[str, Any]]]) -> None:
    """Medians over rounds; waits are those of steps after the first."""
    digests = {each["digest"] for runs in found.values() for each in runs}
    rows = []
    for name, runs in found.items():
        waits = [1000 * wait for each in runs for wait in each["waits"][1:]]
        first = statistics.median(each["waits"][0] for each in runs)
        rows.append(
            [
                name,
                f"{statistics.median(each['opened'] for each in runs):.2f}",
                f"{first:.2f}",
                f"{statistics.median(waits):.2f}",
                f"{float(np.percentile(waits, 95)):.1f}",
                f"{max(waits):.0f}",
                f"{statistics.median(each['cpu'] for each in runs):.2f}",
                f"{statistics.median(each['fetcher'] for each in runs):.2f}",
            ]
        )
    header = ["", "open s", "first batch s", "median wait ms", "p95", "most", "CPU s", "fetcher"]
    print(measure.table(header, rows))
    print("all batches are equal" if len(digests) == 1 else f"BATCHES DIFFER: {digests}")


if __name__ == "__main__":
    main()

"""Compare builds from a slow object store with builds from the same files on a disk.

    python bench/cloud.py CORPUS.jsonl.zst ... --tokenizer tokenizer.json [--latency-ms 30]

The server answers HEAD and GET with ranges of the decompressed files, each after a wait. Builds
alternate. The results are medians of the wall and CPU seconds of tokenmill, without the server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from backports import zstd


async def serve(folder: Path, latency_ms: float) -> None:
    """Print a port, and answer on it until the process is ended."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
                await asyncio.sleep(latency_ms / 1000)
                method, path, _ = request.split(" ", 2)
                file = folder / path.split("?")[0].rpartition("/")[2]
                if not file.is_file():
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                    continue
                size = file.stat().st_size
                asked = re.search(r"range: bytes=(\d+)-(\d+)", request, re.I)
                start, stop = (int(asked[1]), min(int(asked[2]) + 1, size)) if asked else (0, size)
                status = "206 Partial Content" if asked else "200 OK"
                header = f'HTTP/1.1 {status}\r\nContent-Length: {stop - start}\r\nETag: "1"\r\n'
                header += "Last-Modified: Sun, 22 Nov 2026 02:00:00 GMT\r\n"
                if asked:
                    header += f"Content-Range: bytes {start}-{stop - 1}/{size}\r\n"
                writer.write(f"{header}\r\n".encode())
                if method == "GET":
                    with open(file, "rb") as data:
                        data.seek(start)
                        writer.write(data.read(stop - start))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def build(inputs: list[str], tokenizer: str, out: Path, environment: dict[str, str]) -> dict:
    """Wall and CPU seconds of one build, and the id of its dataset."""
    command = [sys.executable, "-m", "tokenmill", "build", *inputs, "--tokenizer", tokenizer]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([*command, "--out", str(out)], check=True, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found = json.loads((out / "manifest.json").read_text())["dataset_id"]
    return {"wall": time.perf_counter() - begun, "cpu": cpu, "id": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("corpus", nargs="+")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--latency-ms", type=float, default=30)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "corpus"
        folder.mkdir()
        for number, part in enumerate(options.corpus):
            with zstd.open(part) as source, open(folder / f"{number}.jsonl", "wb") as target:
                target.write(source.read())
        files = sorted(folder.iterdir())
        gigabytes = sum(file.stat().st_size for file in files) / 1e9
        command = [sys.executable, __file__, "--serve", str(folder), str(options.latency_ms)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
            port = int(server.stdout.readline())
            environment = {
                **os.environ,
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "TOKENMILL_ANONYMOUS": "1",
            }
            inputs = {
                "disk": [str(file) for file in files],
                "s3": [f"s3://bucket/{file.name}" for file in files],
            }
            found: dict[str, list[dict]] = {place: [] for place in inputs}
            for run in range(options.runs):
                for place in sorted(inputs, reverse=run % 2 == 1):
                    out = Path(name) / f"{place}-{run}"
                    found[place].append(build(inputs[place], options.tokenizer, out, environment))
            server.terminate()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()}")
    print(f"tokenmill {version('tokenmill')}, obstore {version('obstore')}")
    print(f"{len(files)} files, {gigabytes:.3f} GB of JSON Lines, {options.latency_ms:g} ms")
    assert len({each["id"] for runs in found.values() for each in runs}) == 1
    medians = {
        place: {key: statistics.median(each[key] for each in runs) for key in ("wall", "cpu")}
        for place, runs in found.items()
    }
    for place, median in medians.items():
        walls = " ".join(f"{each['wall']:.1f}" for each in found[place])
        print(f"{place:>5}  wall {median['wall']:6.2f} s ({walls})  CPU {median['cpu']:6.2f} s")
    disk, s3 = medians["disk"], medians["s3"]
    more = (s3["cpu"] - disk["cpu"]) / gigabytes
    print(f"ratio  wall {s3['wall'] / disk['wall']:.2f} x, CPU {more:+.2f} s per GB; equal ids")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(Path(sys.argv[2]), float(sys.argv[3])))
    else:
        main()

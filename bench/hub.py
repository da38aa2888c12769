"""Compare a build from local files with builds from the Hub: empty cache, full cache, streaming.

The Hub is a server on this machine (`tests/hub_kit.py`) that waits before every answer. So the
figures show the cost of the client and how well it hides latency. The bandwidth of a real network
comes on top.

    python bench/hub.py --data DATA --tokenizer tokenizer.json --work WORK --latency 0.05

DATA is a folder made by `corpus.py`; the builds read its `parquet/`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import measure
from build import Build, Builder, add_options, builder, files_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from hub_kit import FakeHub, serving

NAME = "hf://datasets/bench/corpus"
LIBRARIES = ["tokenmill", "huggingface-hub", "httpx2", "pyarrow", "fastokens"]


def contenders(
    tokenmill: Builder, sources: list[Path], cache: Path, hub: FakeHub
) -> dict[str, Callable[[], tuple[Build, int, int]]]:
    """Builds, each with the requests that it made and the bytes that it was sent."""

    def counted(*arguments: str, empty: bool = False) -> tuple[Build, int, int]:
        if empty:
            shutil.rmtree(cache, ignore_errors=True)
        hub.requests.clear()
        hub.sent_bytes = 0
        build = tokenmill.build([] if arguments else sources, *arguments)
        return build, len(hub.requests), hub.sent_bytes

    kept = (NAME, "--cache-dir", str(cache))
    return {
        "local files": counted,
        "Hub, cold cache": lambda: counted(*kept, empty=True),
        "Hub, warm cache": lambda: counted(*kept),
        "Hub, streamed": lambda: counted(*kept, "--streaming"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder by corpus.py")
    parser.add_argument("--latency", type=float, default=0.05, help="seconds before every answer")
    add_options(parser)
    options = parser.parse_args()
    sources = files_of(options.data / "parquet")
    tokenmill = builder(options)
    with serving() as hub:
        os.environ["HF_ENDPOINT"] = hub.endpoint
        hub.latency_seconds = options.latency
        hub.commit("bench/corpus", {f"data/{path.name}": path.read_bytes() for path in sources})
        rows = contenders(tokenmill, sources, options.work / "cache", hub)
        runs = measure.interleave(rows, options.rounds)
    shutil.rmtree(options.work / "cache")
    local = [build.seconds for build, _, _ in runs["local files"]]
    lines = []
    for name, group in runs.items():
        seconds = [build.seconds for build, _, _ in group]
        build, requests, sent = group[-1]
        assert build.tokens == runs["local files"][0][0].tokens
        lines.append(
            [
                name,
                f"{statistics.median(seconds):.2f}",
                f"{measure.ratio(seconds, local):.2f}",
                f"{requests}",
                f"{sent / 1e6:.1f}",
            ]
        )
    total = sum(path.stat().st_size for path in sources)
    facts = {"bytes": total, "files": len(sources), "latency_seconds": options.latency}
    print(json.dumps({**measure.machine(), **measure.versions(LIBRARIES), **facts}))
    header = ["input", "seconds", "x local", "requests", "MB sent"]
    print(measure.table(header, lines))
    if options.json:
        raw = {name: [vars(build) for build, _, _ in group] for name, group in runs.items()}
        options.json.write_text(json.dumps(raw, indent=1) + "\n")


if __name__ == "__main__":
    main()

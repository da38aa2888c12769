"""Measure builds from many small files: seconds, and memory by two counters.

It makes files of about 1 kB in a temporary folder, one document each, as plain text and as JSON
Lines, and one JSON Lines file with the same documents. Builds are separate processes, interleaved.

    python bench/small_files.py --tokenizer tokenizer.json --files 4000 16000 100000

`own peak` is the memory in the build's summary. `PSS peak` is measured from outside.
"""

from __future__ import annotations

import argparse
import json
import random
import shlex
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import measure

DOCUMENT_BYTES = 1000
FILES_PER_FOLDER = 1000
LETTERS = "etaoinshrdlu"
KINDS = ("one file", "jsonl", "text")


@dataclass(frozen=True)
class Build:
    seconds: float
    cpu_seconds: float
    own_bytes: int
    pss_bytes: int
    dataset_bytes: int
    """Size of the manifest and run.json, which name every source."""


def documents(count: int) -> list[str]:
    """Reproducible words that no cache of chunks holds all of."""
    source = random.Random(0)
    words = ["".join(source.choices(LETTERS, k=source.randint(1, 9))) for _ in range(5000)]
    num_words = DOCUMENT_BYTES // 5
    return [" ".join(source.choices(words, k=num_words))[:DOCUMENT_BYTES] for _ in range(count)]


def write_inputs(folder: Path, kind: str, texts: list[str]) -> None:
    lines = [json.dumps({"text": text}) + "\n" for text in texts] if kind != "text" else texts
    if kind == "one file":
        folder.mkdir()
        (folder / "all.jsonl").write_text("".join(lines))
        return
    suffix = "txt" if kind == "text" else "jsonl"
    for number, content in enumerate(lines):
        path = folder / f"{number // FILES_PER_FOLDER:04d}" / f"{number:06d}.{suffix}"
        if number % FILES_PER_FOLDER == 0:
            path.parent.mkdir(parents=True)
        path.write_text(content)


def build(options: argparse.Namespace, inputs: Path, out: Path) -> Build:
    command = [*shlex.split(options.tokenmill), "build", str(inputs), "--out", str(out)]
    command += ["--tokenizer", str(options.tokenizer), "--workers", str(options.workers)]
    run = measure.run([*command, "--overwrite", "--json"])
    events = [json.loads(line) for line in run.output.splitlines() if line.startswith("{")]
    names = ("manifest.json", "run.json")
    return Build(
        seconds=run.seconds,
        cpu_seconds=run.cpu_seconds,
        own_bytes=events[-1]["peak_bytes"],
        pss_bytes=run.peak_bytes,
        dataset_bytes=sum((out / name).stat().st_size for name in names),
    )


def rows(options: argparse.Namespace, count: int, work: Path) -> list[list[str]]:
    texts = documents(count)
    inputs = {kind: work / f"{count}-{kind.replace(' ', '-')}" for kind in KINDS}
    for kind, folder in inputs.items():
        write_inputs(folder, kind, texts)
    contenders = {
        kind: lambda folder=folder: build(options, folder, work / "out")
        for kind, folder in inputs.items()
    }
    found = measure.interleave(contenders, options.rounds)
    single = [run.seconds for run in found["one file"]]
    return [
        [
            f"{count:,} {kind}" if kind != "one file" else f"{count:,} documents in one file",
            f"{statistics.median(run.seconds for run in runs):.1f}",
            f"{statistics.median(run.cpu_seconds for run in runs):.1f}",
            f"{measure.ratio([run.seconds for run in runs], single):.1f}",
            f"{max(run.own_bytes for run in runs) / 1e6:.0f} MB",
            f"{max(run.pss_bytes for run in runs) / 1e6:.0f} MB",
            f"{runs[0].dataset_bytes / 1e6:.1f} MB",
        ]
        for kind, runs in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--files", type=int, nargs="+", default=[4000, 16_000, 100_000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--tokenmill",
        default=shlex.join([sys.executable, "-m", "tokenmill"]),
        help="the command to measure",
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = [row for count in options.files for row in rows(options, count, Path(work))]
    print(measure.machine())
    header = ["files", "seconds", "CPU s", "to one file", "own peak", "PSS peak", "manifest, run"]
    print(measure.table(header, found))


if __name__ == "__main__":
    main()

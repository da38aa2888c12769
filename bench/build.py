"""Run `tokenmill build` as a measured process and read its output; used by the other programs.

`--tokenmill` sets the command (default: this Python's `-m tokenmill`), so the same code can measure
an installed release, a checkout or another environment.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import measure

IDX_HEADER = struct.Struct("<9sQBQQ")
"""Megatron's index header: magic, version, dtype code, sequences, length of the document index."""
ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 8: 2}


@dataclass(frozen=True)
class Build:
    """One finished build."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    fsync_seconds: float
    """Time spent waiting for the disk to confirm, with nothing else left to do."""
    engine: str
    """The engine that the build chose."""
    documents: int
    tokens: int


@dataclass(frozen=True)
class Builder:
    """What all builds of one benchmark have in common."""

    command: Sequence[str]
    tokenizer: Path
    work: Path
    arguments: Sequence[str] = ()

    def build(self, inputs: Sequence[Path], *arguments: str, hz: float = 0.0) -> Build:
        """Build a fresh dataset from `inputs`, measure it, and remove it again."""
        out = self.work / "dataset"
        shutil.rmtree(out, ignore_errors=True)
        command = [*self.command, "build", *map(str, inputs), "--tokenizer", str(self.tokenizer)]
        run = measure.run([*command, "--out", str(out), *self.arguments, *arguments], hz=hz)
        documents, tokens = counts(out)
        record = json.loads((out / "run.json").read_text())
        shutil.rmtree(out)
        return Build(
            run.seconds,
            run.cpu_seconds,
            run.peak_bytes,
            record["seconds"]["flush_wait"],
            record["engine"],
            documents,
            tokens,
        )


def counts(dataset: Path) -> tuple[int, int]:
    """Documents and tokens of a dataset, from its own shards."""
    documents = tokens = 0
    for index in sorted((dataset / "tokens").glob("*.idx")):
        with open(index, "rb") as stream:
            header = stream.read(IDX_HEADER.size)
        _, _, code, sequences, _ = IDX_HEADER.unpack(header)
        documents += sequences
        tokens += index.with_suffix(".bin").stat().st_size // ITEM_BYTES[code]
    return documents, tokens


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokenizer", type=Path, required=True, help="a tokenizer.json")
    parser.add_argument("--work", type=Path, required=True, help="folder for outputs, emptied")
    parser.add_argument(
        "--tokenmill",
        default=shlex.join([sys.executable, "-m", "tokenmill"]),
        help="the command to measure",
    )
    parser.add_argument("--eos", default="<|endoftext|>")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write every single run to this file")


def builder(options: argparse.Namespace) -> Builder:
    options.work.mkdir(parents=True, exist_ok=True)
    return Builder(
        command=shlex.split(options.tokenmill),
        tokenizer=options.tokenizer,
        work=options.work,
        arguments=["--eos", options.eos],
    )


def files_of(folder: Path) -> list[Path]:
    """The data files of one format folder that `corpus.py` made."""
    found = sorted(path for path in folder.iterdir() if path.name.startswith("part-"))
    if not found:
        raise FileNotFoundError(f"no part-* files in {folder}; make them with bench/corpus.py")
    return found

"""Corpora, builds and comparisons that several tests share."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import random
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tokenmill.api.building import build
from tokenmill.cli import main
from tokenmill.read import units
from tokenmill.run.agreement import JobRecord
from tokenmill.store.canonical import read_sealed, write_sealed
from tokenmill.store.dataset import Dataset

SMALL_UNITS = Path(__file__).with_name("small_units.py")

WORDS = [
    *"the a of to and in that is was he for it with as his on be at by I äöü 日本".split(),
    *("x", "=", "y", "+", "1\n"),
]


def random_texts(count: int, seed: int = 0, words: int = 60) -> list[str]:
    """Reproducible nonsense, now and then empty."""
    source = random.Random(seed)
    lengths = [source.randint(0, words) for _ in range(count)]
    return [" ".join(source.choices(WORDS, k=length)) for length in lengths]


def write_corpus(folder: Path, num_files: int = 3, per_file: int = 400) -> list[Path]:
    """Some JSON Lines files with text and id."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(num_files):
        path = folder / f"part-{number}.jsonl"
        with open(path, "w", encoding="utf-8") as file:
            for index, text in enumerate(random_texts(per_file, seed=number)):
                row = {"id": f"{number}/{index}", "text": text}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        paths.append(path)
    return paths


def in_small_shards(data: Path, tokenizer: Path, out: Path, **options: Any) -> Dataset:
    """A dataset of files in shards of some kilobytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 8 << 10)
        patch.setattr(units, "PIECE_BYTES", 4 << 10)
        return build(data, tokenizer, out, workers=1, **options).dataset


def tokenmill(*arguments: object, small: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end, in a process of its own."""
    return subprocess.run(
        command(*arguments, small=small), capture_output=True, text=True, timeout=120
    )


def on_terminal(columns: int, *arguments: str, **environment: str) -> str:
    """What Python shows on a terminal of this width, without its colours."""
    shown, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    subprocess.run(
        [sys.executable, *arguments],
        stdin=terminal, stdout=terminal, stderr=terminal, check=False,
        env={**env, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while chunk := os.read(shown, 65536):
            text += chunk
    os.close(shown)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text.decode()).replace("\r\n", "\n")


def tokenmill_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The same with small units in this process, which saves the start of another one.

    Not for tests of signals, of memory and of what is imported.
    """
    out, errors = io.StringIO(), io.StringIO()
    line = [str(argument) for argument in arguments]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(units, "MIN_UNIT_BYTES", 64 << 10)
        patch.setattr(units, "PIECE_BYTES", 4 << 10)
        code = main(line)
    return subprocess.CompletedProcess(line, code, out.getvalue(), errors.getvalue())


def command(*arguments: object, small: bool = True) -> list[str]:
    """The command line, with small units unless asked otherwise."""
    program = [str(SMALL_UNITS)] if small else ["-m", "tokenmill"]
    return [sys.executable, *program, *map(str, arguments)]


def built(corpus: Path, tokenizer: Path, out: Path) -> Path:
    """A dataset that the command line builds and nothing disturbs; returns its folder."""
    result = tokenmill_here("build", corpus, "--tokenizer", tokenizer, "--out", out)
    assert result.returncode == 0, result.stderr
    return out


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a dataset but run.json, which tells of times and hosts."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "run.json" and "work" not in path.parts
    }


def documents(folder: Path) -> list[list[int]]:
    """The ids of every document of a dataset."""
    import tokenmill

    dataset = tokenmill.open(folder)
    return [
        shard.document(index).tolist()
        for shard in dataset.shards
        for index in range(len(shard.lengths))
    ]


def texts_of(paths: Sequence[Path]) -> list[str]:
    """The texts of JSON Lines files."""
    return [json.loads(line)["text"] for path in paths for line in path.read_text().splitlines()]


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait until a condition becomes true; fail if it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def set_versions(out: Path, **changes: str) -> None:
    """Let an unfinished build have been begun with other versions of libraries."""
    path = out / "work" / "job.json"
    record = read_sealed(path, JobRecord)
    identity = json.loads(bytes(record.identity))
    identity["versions"] |= changes
    raw = msgspec.Raw(msgspec.json.encode(identity))
    write_sealed(path, msgspec.structs.replace(record, identity=raw))

"""Small files that ask for much memory end in an error that names them, under a real limit."""

from __future__ import annotations

import bz2
import gzip
import lzma
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill.core.errors import DamagedInputError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.formats.scanned import MAX_OPENING_BYTES
from tokenmill.read.per_input import PerInput
from tokenmill.read.sources import find_sources

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEADROOM = """
import resource, sys
from pathlib import Path

def allow(num_bytes):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + num_bytes,) * 2)
"""
BUILD = """
import fastokens, pyarrow.parquet, tokenizers
import tokenmill.run.pipeline
from tokenmill.cli import main

allow(592 << 20)  # each thread reserves some of the address space
sys.exit(main(sys.argv[1:]))
"""
READ = """
from tokenmill.core.errors import DataError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.json_records import JsonParser
from tokenmill.read.per_input import PerInput
from tokenmill.read.sources import find_sources
from tokenmill.read.formats.format import Extent

sources = find_sources(sys.argv[1:])
reader = Reader(sources, Fields(), 1 << 20)
allow(128 << 20)
for source in sources:
    try:
        list(reader.read(Extent(source.index)))
    except DataError as error:
        print(source.name, error.what, error.where.removeprefix(str(source.path)), sep=": ")
"""
LINE = b'{"text": "a"}\n'
LONG_PIECE = b"a" * (32 << 20)
COMPRESS = {
    "gz": lambda data: gzip.compress(data, 1),
    "bz2": lambda data: bz2.compress(data, 1),
    "xz": lambda data: lzma.compress(data, preset=0),
    "zst": lambda data: zstd.compress(data),
}

in_linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")


def bomb(path: Path, num_pieces: int) -> Path:
    """A short record, and one on a line of `num_pieces` times 32 MiB."""
    compress = COMPRESS[path.suffix[1:]]
    pieces = [compress(LONG_PIECE)] * num_pieces
    path.write_bytes(b"".join([compress(LINE + b'{"text": "'), *pieces, compress(b'"}\n')]))
    assert path.stat().st_size < 5_000_000
    return path


def run(code: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", HEADROOM + code, *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, timeout=200)


@in_linux
def test_a_record_that_memory_does_not_hold_names_its_file_and_place(tmp_path: Path) -> None:
    bombs = [bomb(tmp_path / f"bomb.jsonl.{suffix}", 6) for suffix in COMPRESS]
    result = run(READ, *bombs)
    assert result.stderr == ""
    assert result.stdout.splitlines() == [
        f"{path.name}: not enough memory to read an input file: , at or after position 14"
        for path in bombs
    ]


@in_linux
def test_a_build_ends_with_a_data_error_where_a_record_does_not_fit(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    path = bomb(tmp_path / "bomb.jsonl.zst", 18)
    out = tmp_path / "out"
    options = ["--out", out, "--workers", 1, "--engine", "fastokens"]  # which takes more memory
    result = run(BUILD, "build", path, "--tokenizer", tokenizer_path, *options)
    assert result.returncode == 3, result.stderr
    assert "tokenmill: not enough memory to read an input file" in result.stderr
    assert f"where: {path}, at or after position 14" in result.stderr
    assert not (out / "manifest.json").exists()


def window_of(log: int) -> bytes:
    """A frame of zstd that asks for a window of 2^log bytes."""
    options = {zstd.CompressionParameter.window_log: log}
    compressor = zstd.ZstdCompressor(options=options)
    return compressor.compress(LINE) + compressor.flush()


def dictionary_of(num_bytes: int) -> bytes:
    """A stream of xz that asks for a dictionary of this size."""
    return lzma.compress(LINE, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": num_bytes}])


@pytest.mark.parametrize(
    ("made", "size", "is_read"),
    [
        (window_of, 27, True),
        (window_of, 28, False),
        (window_of, 31, False),
        (dictionary_of, 64 << 20, True),
        (dictionary_of, 512 << 20, False),
    ],
    ids=["zstd --long=27", "zstd --long=28", "zstd --long=31", "xz -9", "xz with 512 MiB"],
)
def test_a_window_may_take_as_much_memory_as_the_usual_tools_allow(
    made: Callable[[int], bytes], size: int, is_read: bool, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl.x").write_bytes(made(size))
    (source,) = find_sources([str(tmp_path / "a.jsonl.x")], PerInput("jsonl"))
    batches = Reader([source], Fields(), 1000).read(Extent(0))
    if is_read:
        assert next(batches).texts == ["a"]
        return
    with pytest.raises(DamagedInputError, match="needs too much memory") as caught:
        next(batches)
    assert caught.value.where == str(tmp_path / "a.jsonl.x")


@pytest.mark.parametrize(
    ("name", "start", "piece"),
    [("a.csv", b"", b"\n"), ("b.csv", b"text,", b"a,"), ("a.json", b"[", b" ")],
    ids=["empty lines before a header", "a header without an end", "space behind a bracket"],
)
def test_what_is_before_the_first_record_takes_no_more_memory_than_the_limit(
    name: str, start: bytes, piece: bytes, tmp_path: Path
) -> None:
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(start + piece * (MAX_OPENING_BYTES + 1), 1))
    (source,) = find_sources([str(path)])
    for batch_bytes in (1 << 16, 1 << 26):
        with pytest.raises(DamagedInputError) as caught:
            list(Reader([source], Fields(), batch_bytes).read(Extent(0)))
        assert caught.value.why == "no record starts within 16,777,216 bytes"

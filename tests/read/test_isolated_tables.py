"""A Parquet or Arrow file that lies about itself is damage, and costs its own documents alone."""

from __future__ import annotations

import base64
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import documents

import tokenmill
from tokenmill.core.child import child_pids
from tokenmill.core.errors import DamagedInputError, EngineError
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.formats.tables.isolated import ask, iter_rows
from tokenmill.read.source import Source
from tokenmill.read.sources import find_sources
from tokenmill.run.task import sample_texts

FORMATS = ("arrow-file", "arrow-stream")
GOOD = ["one good text", "another good text"]


def put(path: Path, data: bytes) -> Source:
    path.write_bytes(data)
    (source,) = find_sources([str(path)])
    return source


def arrow_bytes(file_format: str, table: pa.Table) -> bytes:
    new = pa.ipc.new_file if file_format == "arrow-file" else pa.ipc.new_stream
    sink = pa.BufferOutputStream()
    with new(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def with_last_offset(file_format: str, beyond: int) -> bytes:
    """Two texts of 5 and 6 bytes; the second ends `beyond` bytes behind its buffer."""
    data = arrow_bytes(file_format, pa.table({"text": ["first", "second"]}))
    offsets = struct.pack("<3i", 0, 5, 11)
    assert data.count(offsets) == 1
    return data.replace(offsets, struct.pack("<3i", 0, 5, 11 + beyond))


def parser_pids() -> set[int]:
    """The processes that parse tables for this one."""
    return {pid for pid in child_pids() if "tables.process" in psutil.Process(pid).cmdline()[-1]}


def texts(source: Source) -> list[str]:
    return [
        text
        for batch in Reader([source], Fields(), 1 << 20).read(Extent(0))
        for text in batch.texts
    ]


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize(("workers", "beyond"), [(1, 20_000), (1, 2**30), (2, 20_000)])
def test_an_offset_behind_its_buffer_is_damage(
    workers: int, beyond: int, file_format: str, tmp_path: Path, tokenizer_path: Path
) -> None:
    """It was read as text before: the memory of the process became a document."""
    path = tmp_path / "lies.arrow"
    path.write_bytes(with_last_offset(file_format, beyond))
    with pytest.raises(DamagedInputError, match=r"lies\.arrow") as caught:
        tokenmill.build([str(path)], tokenizer_path, tmp_path / "out", workers=workers)
    assert caught.value.exit_code == 3
    assert not (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize("file_format", FORMATS)
def test_nothing_that_looks_at_a_file_before_a_build_takes_memory_for_text(
    file_format: str, tmp_path: Path
) -> None:
    source = put(tmp_path / "lies", with_last_offset(file_format, 20_000))
    ask(source, "columns", Fields())
    assert sample_texts([source], Fields()) == []
    with pytest.raises(DamagedInputError, match="lies"):
        list(iter_rows(source, Fields(), Extent(0), 1 << 20))
    if file_format == "arrow-file":
        for look in (lambda: ask(source, "totals", Fields()), lambda: ask(source, "groups")):
            with pytest.raises(DamagedInputError, match="lies"):
                look()


def test_an_estimate_passes_over_a_file_that_lies(tmp_path: Path, tokenizer_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    put(data / "good.arrow", arrow_bytes("arrow-file", pa.table({"text": GOOD})))
    put(data / "lies.arrow", with_last_offset("arrow-file", 20_000))
    found = tokenmill.estimate(str(data), tokenizer_path, workers=1)
    assert found.sample_documents == 2


def test_a_damaged_page_is_refused_by_its_checksum(tmp_path: Path) -> None:
    """Without the checksum, the flipped byte is one of the text, and nothing can be noticed."""
    path = tmp_path / "checked.parquet"
    options = {"use_dictionary": False, "compression": "none", "write_page_checksum": True,
               "write_statistics": False}  # fmt: skip
    pq.write_table(pa.table({"text": GOOD}), path, **options)
    assert texts(find_sources([str(path)])[0]) == GOOD
    source = put(path, path.read_bytes().replace(b"another", b"anotheR", 1))
    with pytest.raises(DamagedInputError, match=r"checked\.parquet(.|\n)*CRC"):
        texts(source)


def deep_parquet(depth: int) -> bytes:
    """A Parquet file whose footer describes a struct in a struct in a struct ..., and no rows."""
    group = b"\x35\x02\x18\x01a\x15\x02\x00"  # required, named "a", with one child
    leaf = b"\x15\x02\x25\x02\x18\x01b\x00"
    count = depth + 1
    size = bytes([count & 127 | 128, count >> 7 & 127 | 128, count >> 14])
    schema = b"\x19\xfc" + size + group * depth + leaf
    footer = b"\x15\x02" + schema + b"\x16\x00\x19\x0c\x00"
    return b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1"


def test_a_schema_as_deep_as_a_stack_is_damage(tmp_path: Path) -> None:
    """Old versions of Arrow crash on it; new ones refuse it."""
    source = put(tmp_path / "deep.parquet", deep_parquet(300_000))
    for look in (lambda: ask(source, "columns", Fields()), lambda: ask(source, "groups")):
        with pytest.raises(DamagedInputError, match=r"deep\.parquet"):
            look()


def test_row_counts_that_contradict_each_other_are_damage(tmp_path: Path) -> None:
    """Arrow goes by those of the row groups: rows that one of them hides would be dropped."""
    path = tmp_path / "short.parquet"
    pq.write_table(pa.table({"text": GOOD * 13}), path, row_group_size=13)
    data = path.read_bytes()
    thirteen, four = b"\x16\x1a", b"\x16\x08"  # as 64-bit fields of the footer
    places = [at for at in range(len(data)) if data[at : at + 2] == thirteen]
    assert len(places) >= 4  # of each row group and of its column
    for at in places:
        source = put(path, data[:at] + four + data[at + 2 :])
        try:
            assert texts(source) == GOOD * 13
        except DamagedInputError:
            continue


# Two rows and one flipped bit in the footer, found by fuzzing. Arrow 26 calls std::terminate when
# it is asked for the size of the column.
CRASHES_ARROW = base64.b85decode(
    "P(e~L6#x|=6(B4X1Qh@k1{DSzHUKCAVi*Bo5fK0Y00IC200aR60001C0RR91Vig1#EHwZa26JO*Wo=;<0ss{ZB?A})bY*y"
    "SB>+qu0000M1Q{F|93}u96$}|A1^^it1axJ1bQJ&=1QuErS|$iQHUKCAVi*Bo5fK0x92Ec+02KlNJQf5Q1{o#*1ONa47Fr"
    "erCI}W<04N}EVRCVGWppiLaBwYQa&m8XAa-SPb7^mGATl;CFfK6}92@`u0F(d#08l|vF#"
)


def test_a_file_that_crashes_arrow_is_damage_and_the_next_file_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": GOOD}), tmp_path / "good.parquet")
    (good,) = find_sources([str(tmp_path / "good.parquet")])
    bad = put(tmp_path / "bad.parquet", CRASHES_ARROW)
    for look in (lambda: ask(bad, "totals", Fields()), lambda: texts(bad)):
        with pytest.raises(DamagedInputError, match=r"bad\.parquet"):
            look()
        assert texts(good) == GOOD


def ending(source: Source, number: signal.Signals) -> None:
    """Read the first rows of a file, end the process that parses it, and ask for more."""
    pieces = iter_rows(source, Fields(), Extent(0), 20)
    next(pieces)
    (pid,) = parser_pids()
    os.kill(pid, number)
    list(pieces)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_crash_of_the_parser_is_damage_and_the_next_file_is_read(
    number: signal.Signals, tmp_path: Path
) -> None:
    good = put(tmp_path / "good.arrow", arrow_bytes("arrow-stream", pa.table({"text": GOOD})))
    bad = put(tmp_path / "bad.arrow", arrow_bytes("arrow-stream", pa.table({"text": GOOD * 9})))
    with pytest.raises(DamagedInputError, match=rf"bad\.arrow.*\n.*crashed.*{number.name}"):
        ending(bad, number)
    assert texts(good) == GOOD


def test_a_parser_that_is_killed_is_no_damage(tmp_path: Path) -> None:
    """Whoever ran out of memory must not put a good file into quarantine."""
    source = put(tmp_path / "a.arrow", arrow_bytes("arrow-stream", pa.table({"text": GOOD * 9})))
    with pytest.raises(EngineError, match=r"killed(.|\n)*a\.arrow(.|\n)*SIGKILL"):
        ending(source, signal.SIGKILL)


CRASHING = """
import builtins, os, signal, sys

def crash(path, *arguments, **options):
    if "crash" in os.path.basename(str(path)):
        os.kill(os.getpid(), signal.SIGSEGV)
    return open_file(path, *arguments, **options)

if "tables.process" in sys.orig_argv[-1]:
    open_file, builtins.open = open, crash
"""


def test_a_file_that_crashes_arrow_is_quarantined_and_the_others_are_built(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    """Arrow's crash is acted by its process: a file that crashes this version is not known."""
    (tmp_path / "sitecustomize.py").write_text(CRASHING)
    data = tmp_path / "data"
    data.mkdir()
    for name in ("a", "crash", "z"):
        pq.write_table(pa.table({"text": GOOD}), data / f"{name}.parquet")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    command = [sys.executable, "-m", "tokenmill", "build", data, "--out", tmp_path / "out",
               "--tokenizer", tokenizer_path, "--on-bad-file", "quarantine",
               "--workers", "2"]  # fmt: skip
    result = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    sources = tokenmill.open(tmp_path / "out").manifest.sources
    assert [source.name for source in sources if source.quarantined] == ["crash.parquet"]
    assert "SIGSEGV" in str(sources[1].quarantined)
    assert len(documents(tmp_path / "out")) == 4


def test_one_process_parses_many_files(tmp_path: Path) -> None:
    sources = [
        put(tmp_path / f"{number}.arrow", arrow_bytes("arrow-file", pa.table({"text": GOOD})))
        for number in range(5)
    ]
    pids = set()
    for source in sources:
        ask(source, "columns", Fields())
        assert texts(source) == GOOD
        assert sample_texts([source], Fields()) == GOOD
        pids |= parser_pids()
    assert len(pids) == 1


def test_a_kept_value_that_python_cannot_hold_is_damage(tmp_path: Path) -> None:
    days = pa.array([2**31 - 1], pa.date32())
    table = pa.table({"text": ["a"], "meta": pa.StructArray.from_arrays([days], ["day"])})
    source = put(tmp_path / "far.arrow", arrow_bytes("arrow-file", table))
    with pytest.raises(DamagedInputError, match=r"far\.arrow"):
        list(Reader([source], Fields(keep=("meta",)), 1 << 20).read(Extent(0)))

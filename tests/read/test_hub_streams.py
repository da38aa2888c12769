"""Files of the Hub read where they are: the wanted bytes only, however the server behaves."""

from __future__ import annotations

import gzip
import random
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hub_kit import FakeHub, Fault, etag_of, parquet, serving
from tokenmill.core.errors import DamagedInputError, InputChangedError, UserError
from tokenmill.read import range_file, units
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import Extent
from tokenmill.read.formats.tables.isolated import ask
from tokenmill.read.places.hub import client
from tokenmill.read.places.hub.client import RemoteFile
from tokenmill.read.places.hub.names import HubFile
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import find_sources
from tokenmill.read.units import Stream, cut_units, feed_stream

NOISE = random.Random(0)
TEXTS = [NOISE.randbytes(100).hex() for _ in range(4000)]
JUNK = [NOISE.randbytes(1000).hex() for _ in range(4000)]
NAME = "hf://datasets/o/n/a.parquet"
PAUSE = client.pause


@pytest.fixture(scope="module")
def data() -> bytes:
    ids = [str(number) for number in range(4000)]
    return parquet(TEXTS, rows=1000, junk=JUNK, id=ids)


@pytest.fixture
def hub(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(client, "pause", lambda seconds, check: check())
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.commit("o/n", {"a.parquet": data})
        yield hub


def source_of(folder: Path) -> Source:
    (source,) = find_sources([NAME], access=Access("stream", str(folder)))
    return source


def spooled(source: Source, folder: Path, fields: Fields, unit_bytes: int) -> list[tuple[str, ...]]:
    """The texts, and the ids where they are read, of all parts of a stream."""
    reader = Reader([source], fields, 1 << 16)
    rows: list[tuple[str, ...]] = []
    stream = Stream(0, unit_bytes)
    for unit, spool in feed_stream(stream, source, fields, folder, lambda key: True):
        assert isinstance(spool, Path)
        for batch in reader.read(unit.extents[0], spool):
            rows += zip(*filter(None, [batch.texts, batch.ids]), strict=True)
        spool.unlink()
    return rows


@pytest.mark.parametrize("block_bytes", [1 << 23, 50_000])
def test_a_stream_gives_every_row_and_fetches_the_wanted_columns(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr("tokenmill.read.formats.tables.isolated.BLOCK_BYTES", block_bytes)
    source = source_of(tmp_path)
    footer_bytes = 1 << 16
    assert spooled(source, tmp_path, Fields(), 200_000) == [(text,) for text in TEXTS]
    assert hub.sent_bytes < sum(map(len, TEXTS)) + footer_bytes + 50_000
    rows = spooled(source, tmp_path, Fields(id="id"), 200_000)
    assert rows == [(text, str(number)) for number, text in enumerate(TEXTS)]
    assert not list(tmp_path.glob("*.spool"))


def test_no_byte_is_fetched_twice(hub: FakeHub, tmp_path: Path) -> None:
    spooled(source_of(tmp_path), tmp_path, Fields(), 1 << 20)
    asked = [request.split("=")[1].split("-") for request in hub.requests if "/store/" in request]
    ranges = sorted((int(start), int(stop) + 1) for start, stop in asked)
    overlaps = [a for a, b in pairwise(ranges) if a[1] > b[0]]
    assert overlaps == []


def test_a_stream_is_a_source_that_is_not_on_this_machine(hub: FakeHub, tmp_path: Path) -> None:
    source = source_of(tmp_path)
    assert (source.name, source.format) == ("o/n/a.parquet", "parquet")
    assert source.where == f"hf://datasets/o/n@{hub.revisions['o/n']['main']}/a.parquet"
    assert list(cut_units([source], Fields(), 1 << 20)) == [Stream(0, 1 << 20)]
    assert len(ask(source, "groups")) == 2 * 4
    with pytest.raises(UserError, match="cannot find the column 'x'") as caught:
        ask(source, "columns", Fields("x"))
    assert caught.value.why == "the columns are text, junk, id"


def test_who_wants_the_first_rows_fetches_little(hub: FakeHub, tmp_path: Path, data: bytes) -> None:
    batch = next(Reader([source_of(tmp_path)], Fields(), 2_000).read(Extent(0)))
    assert batch.texts[0] == TEXTS[0]
    assert hub.sent_bytes < len(data) / 10


def test_answers_that_fail_or_break_off_change_nothing(hub: FakeHub, tmp_path: Path) -> None:
    source = source_of(tmp_path)
    hub.faults = [
        Fault("/resolve/", 429, {"Retry-After": "1"}),
        Fault("/store/", cut_after=100),
        Fault("/resolve/", 500),
        Fault("/store/", 503),
        Fault("/store/", short_by=10),
        Fault("/store/", cut_after=0),
    ]
    assert spooled(source, tmp_path, Fields(), 200_000) == [(text,) for text in TEXTS]
    assert [fault.times for fault in hub.faults] == [0] * 6


def test_a_file_that_changes_while_it_is_read_is_refused(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "PIECE_BYTES", 50_000)
    source = source_of(tmp_path)
    fed = feed_stream(Stream(0, 100_000), source, Fields(), tmp_path, lambda key: True)
    next(fed)
    hub.etags["a.parquet"] = "0" * 64
    with pytest.raises(InputChangedError, match="changed after it was listed"):
        list(fed)


def test_a_wait_ends_when_nothing_is_to_come_any_more(hub: FakeHub, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def check() -> None:
        raise StoppedError

    source = source_of(tmp_path)
    hub.faults = [Fault("/store/", 503, times=1000)]
    with pytest.raises(StoppedError):
        list(feed_stream(Stream(0, 1), source, Fields(), tmp_path, lambda key: True, check))


def remote(hub: FakeHub, data: bytes) -> HubFile:
    sha = hub.revisions["o/n"]["main"]
    return HubFile("o/n", sha, "a.parquet", len(data), etag_of("a.parquet", data))


def test_any_reads_at_any_places_give_the_bytes_of_the_file(hub: FakeHub, data: bytes) -> None:
    moves = random.Random(1)
    with RemoteFile(remote(hub, data)) as file:
        file.read_ahead([[(0, 3000), (9000, 9500)], [(3000, 9000), (9500, 9600)]], 2000)
        for _ in range(50):
            start, size = moves.randrange(12_000), moves.randrange(5000)
            file.seek(start)
            assert file.read(size) == data[start : start + size]
            assert file.tell() == start + size
        file.seek(-10, 2)
        assert file.read() == data[-10:]
        assert file.read(5) == b""


def test_what_waits_in_memory_is_bounded_over_all_files(
    hub: FakeHub, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_file, "MAX_AHEAD_BYTES", 5000)
    room = range_file._ROOM
    with RemoteFile(remote(hub, data)) as one, RemoteFile(remote(hub, data)) as other:
        for file in (one, other):
            file.read_ahead([[(0, 100_000)]], 2000)
        for start in range(0, 100_000, 2000):
            for file in (one, other):
                assert file.read(2000) == data[start : start + 2000]
                assert room._taken <= 5000
        one.seek(0)
        one.read(2000)
        assert room._taken > 0
    assert room._taken == 0


def test_a_closed_file_leaves_no_thread_that_waits_for_the_server(
    hub: FakeHub, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "pause", PAUSE)
    with RemoteFile(remote(hub, data)) as file:
        file.read_ahead([[(0, 100_000)]], 2000)
        file.read(2000)
        file._coming[2000][1].result()  # read ahead
        hub.faults = [Fault("/resolve/", 503, {"Retry-After": "600"}, times=1000)]
        file.read(2000)
        while hub.faults[0].times == 1000:
            time.sleep(0.01)
        waiting = [each for each in threading.enumerate() if each.name.startswith("read-ahead")]
        assert waiting
    for thread in waiting:
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("wrong", [(0, 10**9), (-5, 10), (20, 10)])
def test_a_footer_that_names_bytes_outside_the_file_is_damage(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: tuple[int, int]
) -> None:
    read_ahead = RemoteFile.read_ahead
    announce = lambda file, columns, block_bytes: read_ahead(file, [[wrong]], block_bytes)  # noqa: E731
    monkeypatch.setattr(RemoteFile, "read_ahead", announce)
    with pytest.raises(DamagedInputError, match=f"bytes {wrong[0]} to {wrong[1]}"):
        spooled(source_of(tmp_path), tmp_path, Fields(), 1 << 20)
    assert hub.asked("/store/") == 1  # the footer


def test_only_parquet_is_streamed_and_nothing_else_is_touched(hub: FakeHub, tmp_path: Path) -> None:
    hub.commit("o/lines", {f"{number}.jsonl.gz": b"" for number in range(5)})
    names = [NAME, "hf://datasets/o/lines/*"]
    with pytest.raises(UserError, match="an input cannot be streamed"):
        find_sources(names, access=Access("stream", str(tmp_path)))
    assert hub.asked("/resolve/") == 0


def test_distant_files_are_taken_to_be_like_the_first_with_their_suffix(
    hub: FakeHub, tmp_path: Path
) -> None:
    lines = b'{"text": "a"}\n'
    packed = {f"{number}.json.gz": gzip.compress(lines) for number in range(5)}
    hub.commit("o/many", {**packed, "0.json": lines, "1.json": lines})
    sources = find_sources(["hf://datasets/o/many/*"], access=Access("sample", str(tmp_path)))
    found = [(source.format, source.compression) for source in sources]
    assert found == [("jsonl", "none"), ("jsonl", "gzip")] * 2 + [("jsonl", "gzip")] * 3
    assert hub.asked("/resolve/") == 2

"""Files of the Hub read where they are: the wanted bytes only, however the server behaves."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hub_kit import FakeHub, Fault, etag_of, parquet, serving
from tokenmill.errors import InputChangedError, StorageError
from tokenmill.read import feed
from tokenmill.read.columnar import schema_of
from tokenmill.read.documents import Reader, Spool
from tokenmill.read.feed import feed_stream
from tokenmill.read.fields import Fields
from tokenmill.read.hub import patience
from tokenmill.read.hub.access import HubAccess
from tokenmill.read.hub.file import HubFile
from tokenmill.read.hub.remote_file import RemoteFile
from tokenmill.read.sources import Source, find_sources
from tokenmill.read.table_sizes import row_group_bytes
from tokenmill.read.units import Extent, Stream, cut_units

NOISE = random.Random(0)
TEXTS = [NOISE.randbytes(100).hex() for _ in range(4000)]
JUNK = [NOISE.randbytes(1000).hex() for _ in range(4000)]
NAME = "hf://datasets/o/n/a.parquet"


@pytest.fixture(scope="module")
def data() -> bytes:
    ids = [str(number) for number in range(4000)]
    return parquet(TEXTS, rows=1000, junk=JUNK, id=ids)


@pytest.fixture
def hub(data: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setattr(patience, "pause", lambda seconds, check: check())
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.commit("o/n", {"a.parquet": data})
        yield hub


def source_of(folder: Path) -> Source:
    (source,) = find_sources([NAME], hub=HubAccess("stream", str(folder)))
    return source


def spooled(source: Source, folder: Path, fields: Fields, unit_bytes: int) -> list[tuple[str, ...]]:
    """The texts, and the ids where they are read, of all parts of a stream."""
    reader = Reader([source], fields, 1 << 16)
    rows: list[tuple[str, ...]] = []
    stream = Stream(0, unit_bytes)
    for unit, spool in feed_stream(stream, source, fields, folder, lambda key: True):
        assert isinstance(spool, Spool)
        for batch in reader.read(unit.extents[0], spool):
            rows += zip(*filter(None, [batch.texts, batch.ids]), strict=True)
        spool.path.unlink()
    return rows


@pytest.mark.parametrize("block_bytes", [1 << 23, 50_000])
def test_a_stream_gives_every_row_and_fetches_the_wanted_columns(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int
) -> None:
    monkeypatch.setattr("tokenmill.read.columnar.BLOCK_BYTES", block_bytes)
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
    assert len(row_group_bytes(source)) == 4
    assert schema_of(source).names == ["text", "junk", "id"]


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
    monkeypatch.setattr(feed, "PIECE_BYTES", 50_000)
    source = source_of(tmp_path)
    fed = feed_stream(Stream(0, 100_000), source, Fields(), tmp_path, lambda key: True)
    next(fed)
    hub.etags["a.parquet"] = "0" * 64
    with pytest.raises(InputChangedError, match="not what it was listed as"):
        list(fed)


def test_a_server_that_goes_away_is_given_up(hub: FakeHub, tmp_path: Path) -> None:
    source = source_of(tmp_path)
    hub.faults = [Fault("/store/", 503, times=1000)]
    with pytest.raises(StorageError, match="the Hub does not answer"):
        spooled(source, tmp_path, Fields(), 200_000)


def test_a_wait_ends_when_nothing_is_to_come_any_more(hub: FakeHub, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def check() -> None:
        raise StoppedError

    source = source_of(tmp_path)
    hub.faults = [Fault("/store/", 503, times=1000)]
    with pytest.raises(StoppedError):
        list(feed_stream(Stream(0, 1), source, Fields(), tmp_path, lambda key: True, check))


def test_any_reads_at_any_places_give_the_bytes_of_the_file(hub: FakeHub, data: bytes) -> None:
    sha = hub.revisions["o/n"]["main"]
    remote = HubFile("o/n", sha, "a.parquet", len(data), etag_of("a.parquet", data))
    moves = random.Random(1)
    with RemoteFile(remote) as file:
        file.read_ahead([[(0, 3000), (9000, 9500)], [(3000, 9000), (9500, 9600)]], 2000)
        for _ in range(50):
            start, size = moves.randrange(12_000), moves.randrange(5000)
            file.seek(start)
            assert file.read(size) == data[start : start + size]
            assert file.tell() == start + size
        file.seek(-10, 2)
        assert file.read() == data[-10:]
        assert file.read(5) == b""

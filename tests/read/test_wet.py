"""WET records: the texts that warcio reads, and a damaged record costs itself alone."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from records_kit import read, read_as_stream, source_of
from tokenmill.core.errors import DamagedInputError, UserError
from tokenmill.read.fields import Fields
from tokenmill.read.formats import wet
from tokenmill.read.rendering.renderer import TextTemplate
from tokenmill.read.sources import check_fields

quick = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
END = b"\r\n\r\n"
INFO = (
    b"WARC/1.0\r\nWARC-Type: warcinfo\r\nContent-Type: application/warc-fields\r\n"
    b"Content-Length: 13\r\n\r\nrobots: obey\n" + END
)


def page(number: int, text: bytes, length: int | None = None, kind: bytes = b"conversion") -> bytes:
    """A record, without the line ends after it."""
    size = len(text) if length is None else length
    return (
        b"WARC/1.0\r\nWARC-Type: %s\r\nWARC-Target-URI: https://example.org/%d\r\n"
        b"WARC-Record-ID: <urn:uuid:%d>\r\nWARC-Identified-Content-Language: eng,deu\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (kind, number, number, size, text)
    )


def test_texts_are_read_with_their_headers(tmp_path: Path) -> None:
    pages = [page(1, b"one\n"), page(2, "zwei\r\n\r\nä".encode()), page(3, b"")]
    content = INFO + b"".join(each + END for each in pages)
    fields = Fields(id="WARC-Record-ID", keep=("warc-target-uri",))
    source = source_of(tmp_path / "a.warc.wet", content)
    check_fields([source], fields)
    found = read(source, fields)
    assert source.format == "wet"
    first, second = len(INFO), len(INFO) + len(pages[0]) + 4
    assert found.documents == [
        (first, len(pages[0]), "one\n"),
        (second, len(pages[1]), "zwei\r\n\r\nä"),
        (second + len(pages[1]) + 4, len(pages[2]), ""),
    ]
    assert found.ids == ["<urn:uuid:1>", "<urn:uuid:2>", "<urn:uuid:3>"]
    assert found.columns == {
        "warc-target-uri": [f"https://example.org/{number}" for number in (1, 2, 3)]
    }
    assert found.between_bytes == len(INFO) + 3 * 4
    assert (found.num_bytes, found.digested) == (len(content), content)


def test_a_file_of_a_member_a_record_is_read_whole(tmp_path: Path) -> None:
    records = [INFO, *(page(number, b"text %d" % number) + END for number in range(5))]
    content = b"".join(map(gzip.compress, records))
    source = source_of(tmp_path / "CC-MAIN-00000.warc.wet.gz", content)
    assert (source.format, source.compression) == ("wet", "gzip")
    assert read(source).texts == [f"text {number}" for number in range(5)]


BAD = {
    "too long": page(2, b"two", length=9),
    "far too long": page(2, b"two", length=10**17),
    "longer than a record": page(2, b"two", length=300),
    "too short": page(2, b"the second", length=3),
    "no length": b"WARC/1.0\r\nWARC-Type: conversion\r\n\r\ntwo",
    "not a record": b"some text\r\n\r\nin between",
}


@pytest.mark.parametrize("name", BAD)
def test_a_record_whose_length_is_wrong_is_set_aside_alone(tmp_path: Path, name: str) -> None:
    content = INFO + END.join(
        [page(1, b"one"), BAD[name], page(3, b"three"), page(4, b"four"), b""]
    )
    source = source_of(tmp_path / "a.wet", content)
    found = read(source)
    assert found.texts == ["one", "three", "four"]
    place = len(INFO) + len(page(1, b"one")) + 4
    assert found.rejected == [(place, "invalid-warc", BAD[name])]
    assert found.num_bytes == len(content)
    assert read_as_stream(source, tmp_path, unit_bytes=1, batch_bytes=1).rejected == found.rejected


def test_text_that_is_not_utf8_and_a_last_record_that_is_cut_off_are_set_aside(
    tmp_path: Path,
) -> None:
    content = INFO + page(1, b"\xff") + END + page(2, b"two") + END + page(3, b"thr", length=5)
    found = read(source_of(tmp_path / "a.wet", content))
    assert (found.texts, found.reasons) == (["two"], ["invalid-utf8", "invalid-warc"])


def test_lengths_that_are_wrong_again_and_again_are_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wet, "MAX_WASTED_BYTES", 5000)
    content = INFO + END.join(page(number, b"a", length=1000) for number in range(10))
    with pytest.raises(DamagedInputError, match="too many records have a wrong Content-Length"):
        read(source_of(tmp_path / "a.wet", content))


def test_pages_with_their_markup_are_refused(tmp_path: Path) -> None:
    content = INFO + page(1, b"HTTP/1.1 200 OK\r\n\r\n<html>", kind=b"response") + END
    with pytest.raises(UserError, match="unsupported format") as caught:
        source_of(tmp_path / "a.warc", content)
    assert "trafilatura" in (caught.value.hint or "")
    source = source_of(tmp_path / "a.warc", content, "wet")
    with pytest.raises(UserError, match="cannot read text from a WARC file"):
        check_fields([source], Fields())
    assert (read(source).texts, read(source).reasons) == ([], [])


def test_text_is_known_by_its_records_whatever_the_file_is_called(tmp_path: Path) -> None:
    content = INFO + page(1, b"one") + END
    assert source_of(tmp_path / "a.warc", content).format == "wet"
    assert source_of(tmp_path / "b", content).format == "wet"
    assert source_of(tmp_path / "c.wet", INFO).format == "wet"


def test_fields_that_no_record_has_are_refused(tmp_path: Path) -> None:
    source = source_of(tmp_path / "a.wet", INFO + page(1, b"one") + END)
    with pytest.raises(UserError, match="the field 'url' in the first records"):
        check_fields([source], Fields(keep=("url",)))
    with pytest.raises(UserError, match="the field 'body' in the first records"):
        check_fields([source], Fields("body"))


def test_a_text_may_be_made_of_headers(tmp_path: Path) -> None:
    fields = Fields(rendering=TextTemplate("{WARC-Target-URI}\n{text}"))
    source = source_of(tmp_path / "a.wet", INFO + page(1, b"one") + END)
    check_fields([source], fields)
    assert read(source, fields).texts == ["https://example.org/1\none"]


texts = st.lists(st.sampled_from([*"ab\r\n:ä", "\nWARC/1.0\r\n"]), max_size=9).map("".join)


@quick
@given(
    records=st.lists(st.tuples(st.sampled_from(["conversion", "metadata"]), texts), max_size=8),
    batch_bytes=st.integers(1, 64),
    unit_bytes=st.integers(1, 500),
)
def test_texts_are_those_of_warcio_in_whatever_blocks_and_parts(
    tmp_path: Path, records: list[tuple[str, str]], batch_bytes: int, unit_bytes: int
) -> None:
    warcio = pytest.importorskip("warcio", reason="warcio is not installed")
    pages = [
        page(number, text.encode(), kind=kind.encode())
        for number, (kind, text) in enumerate(records)
    ]
    content = b"".join(each + END for each in pages)
    fields = Fields(id="WARC-Record-ID")
    source = source_of(tmp_path / "a.wet", content, "wet")
    found = read(source, fields)
    expected = [
        (record.rec_headers["WARC-Record-ID"], record.content_stream().read().decode())
        for record in warcio.ArchiveIterator(io.BytesIO(content))
        if record.rec_type == "conversion"
    ]
    assert list(zip(found.ids, found.texts, strict=True)) == expected
    assert (found.num_bytes, found.digested, found.rejected) == (len(content), content, [])
    assert read(source, fields, batch_bytes) == found
    assert read_as_stream(source, tmp_path, unit_bytes, batch_bytes, fields) == found


PIECES = [page(1, b"a"), page(2, b"bc", 1), page(3, b"d", 60), INFO, b"\r\n", b"\n", b"x", b"WARC/"]


@quick
@given(
    pieces=st.lists(st.sampled_from(PIECES), max_size=8),
    batch_bytes=st.integers(1, 64),
    unit_bytes=st.integers(1, 500),
)
def test_damage_is_the_same_in_whatever_blocks_and_parts(
    tmp_path: Path, pieces: list[bytes], batch_bytes: int, unit_bytes: int
) -> None:
    content = b"".join(pieces)
    source = source_of(tmp_path / "a.wet", content, "wet")
    found = read(source)
    assert (found.num_bytes, found.digested) == (len(content), content)
    assert read(source, batch_bytes=batch_bytes) == found
    assert read_as_stream(source, tmp_path, unit_bytes, batch_bytes) == found

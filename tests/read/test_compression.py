"""Compressed files give all their bytes or an error, never fewer bytes in silence."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest

from tokenmill.core.errors import DamagedInputError
from tokenmill.read.compression import compression_of, decompressed

try:
    from compression import zstd
except ImportError:
    from backports import zstd

FIRST = b"".join(b'{"text": "first %d"}\n' % number for number in range(300))
SECOND = b"".join(b'{"text": "second %d"}\n' % number for number in range(300))


def checked_zstd(data: bytes) -> bytes:
    """A frame with a checksum, as the zstd program writes it."""
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


def skippable(content: bytes) -> bytes:
    return b"\x50\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content


COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zstd": checked_zstd,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
each_compression = pytest.mark.parametrize("compression", COMPRESS)


def read(path: Path, data: bytes, compression: str) -> bytes:
    path.write_bytes(data)
    with open(path, "rb") as raw, decompressed(raw, path, compression) as stream:
        return b"".join(iter(lambda: stream.read(1 << 30), b""))


@each_compression
def test_every_member_frame_or_stream_is_read(compression: str, tmp_path: Path) -> None:
    compress = COMPRESS[compression]
    for parts in ([FIRST], [FIRST, SECOND], [FIRST, b"", SECOND], [b""], [b"a"] * 50):
        data = b"".join(map(compress, parts))
        assert compression_of(data) == compression
        assert read(tmp_path / "file", data, compression) == b"".join(parts)


def test_skippable_zstd_frames_are_skipped_wherever_they_stand(tmp_path: Path) -> None:
    frames = [skippable(b"head"), checked_zstd(FIRST), skippable(b""), checked_zstd(SECOND)]
    data = b"".join([*frames, skippable(b"tail")])
    assert compression_of(data) == "zstd"
    assert read(tmp_path / "file", data, "zstd") == FIRST + SECOND


@pytest.mark.parametrize(("compression", "padding"), [("gzip", 512), ("xz", 4), ("xz", 100_000)])
def test_zero_padding_is_no_damage_where_the_format_allows_it(
    compression: str, padding: int, tmp_path: Path
) -> None:
    zeros, compress = b"\x00" * padding, COMPRESS[compression]
    data = compress(FIRST) + zeros + compress(SECOND) + zeros
    assert read(tmp_path / "file", data, compression) == FIRST + SECOND


@each_compression
def test_a_truncated_file_is_damaged_wherever_it_ends(compression: str, tmp_path: Path) -> None:
    first, second = COMPRESS[compression](FIRST), COMPRESS[compression](SECOND)
    data, boundary = first + second, len(first)
    edges = {*range(1, 30), *range(boundary - 15, boundary + 30), *range(len(data) - 15, len(data))}
    for size in sorted((edges | set(range(30, len(data), 97))) - {boundary}):
        with pytest.raises(DamagedInputError, match="an input file is damaged"):
            read(tmp_path / "file", data[:size], compression)


@each_compression
def test_a_flipped_bit_changes_nothing_or_is_damage(compression: str, tmp_path: Path) -> None:
    """Header fields such as times carry no data; every other flip must be seen."""
    first, second = COMPRESS[compression](FIRST), COMPRESS[compression](SECOND)
    data, boundary = first + second, len(first)
    edges = {*range(12), *range(boundary - 12, boundary + 12), *range(len(data) - 12, len(data))}
    num_damaged = 0
    for place in sorted(edges | set(range(12, len(data), 53))):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            try:
                assert read(tmp_path / "file", bytes(flipped), compression) == FIRST + SECOND
            except DamagedInputError:
                num_damaged += 1
    assert num_damaged > 300


@each_compression
@pytest.mark.parametrize("garbage", [b"x", b"garbage!", b"\n", b"\x01" * 20_000], ids=len)
def test_garbage_after_the_end_is_damage(compression: str, garbage: bytes, tmp_path: Path) -> None:
    data = COMPRESS[compression](FIRST) + garbage
    with pytest.raises(DamagedInputError) as caught:
        read(tmp_path / "file", data, compression)
    assert caught.value.where == str(tmp_path / "file")
    assert caught.value.why.startswith(f"{compression}: ")


def test_truncated_skippable_frames_are_damage(tmp_path: Path) -> None:
    data = checked_zstd(FIRST) + skippable(b"abcdef")
    for size in range(len(data) - 13, len(data)):
        with pytest.raises(DamagedInputError):
            read(tmp_path / "file", data[:size], "zstd")

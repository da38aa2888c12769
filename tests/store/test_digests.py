"""Digests of what passes through, equal to digests of what lies on the disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.store import digests
from tokenmill.store.digests import BLOCK_BYTES, DigestWriter, block_digests, file_digest


def expected_blocks(data: bytes, size: int) -> bytes:
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(xxhash.xxh3_64_intdigest(piece).to_bytes(8, "little") for piece in pieces)


def write(path: Path, pieces: list[bytes]) -> DigestWriter:
    writer = DigestWriter(path)
    for piece in pieces:
        writer.write(piece)
    writer.close()
    return writer


@given(st.lists(st.binary(max_size=20), max_size=8))
@settings(deadline=None)
def test_digests_do_not_depend_on_how_the_bytes_arrive(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]
) -> None:
    data, path = b"".join(pieces), tmp_path_factory.mktemp("digests") / "file"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digests, "BLOCK_BYTES", 8)
        writer = write(path, pieces)
        assert writer.block_digests == expected_blocks(data, 8)
        assert block_digests(memoryview(data)) == writer.block_digests
    assert path.read_bytes() == data
    assert writer.num_bytes == len(data)
    assert writer.digest == xxhash.xxh3_128_hexdigest(data) == file_digest(path)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 200_000])
def test_blocks_are_64_kib_and_the_last_one_may_be_shorter(size: int, tmp_path: Path) -> None:
    data = np.arange(size, dtype=np.uint8).tobytes()
    writer = write(tmp_path / "file", [data])
    assert writer.block_digests == expected_blocks(data, 65_536)
    assert len(writer.block_digests) == 8 * -(-size // 65_536)

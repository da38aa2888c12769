"""What a fetcher writes into a cache was verified before; what fails says where."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import xxhash

from cloud_kit.chaos import Chaos, chaos
from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill.core.errors import StorageError, VerificationError
from tokenmill.store.cloud import stores
from tokenmill.store.cloud.client import Client
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.remote import fetching as fetching_module
from tokenmill.store.remote.cache_folder import make_holes, punch_holes
from tokenmill.store.remote.fetcher import FetchBlocks, FetchFile
from tokenmill.store.remote.fetching import TRIES, Fetching

CONTENT = np.random.default_rng(0).bytes(2 * BLOCK_BYTES + 100)
BLOCKS = [CONTENT[at : at + BLOCK_BYTES] for at in range(0, len(CONTENT), BLOCK_BYTES)]


@pytest.fixture(scope="module")
def proxy() -> Iterator[Chaos]:
    with moto() as port, chaos(port) as faults:
        yield faults


@pytest.fixture
def fetching(proxy: Chaos, monkeypatch: pytest.MonkeyPatch) -> Fetching:
    for name, value in s3_environment(proxy.port).items():
        monkeypatch.setenv(name, value)
    client = Client(f"s3://{BUCKET}/place")
    client.put("a.bin", CONTENT)
    return Fetching(client)


def blocks(path: Path, first: int = 0, content: bytes = CONTENT) -> FetchBlocks:
    """A request for the blocks from one on."""
    start = first * BLOCK_BYTES
    digests = [
        xxhash.xxh3_64_intdigest(content[at : at + BLOCK_BYTES])
        for at in range(start, len(content), BLOCK_BYTES)
    ]
    return FetchBlocks(
        key="a.bin",
        path=str(path),
        start=start,
        num_bytes=len(content) - start,
        digests=digests,
    )


def test_blocks_come_once(fetching: Fetching, proxy: Chaos, tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    make_holes(path, len(CONTENT))
    fetching.carry_out(blocks(path, first=1))
    assert path.read_bytes() == bytes(BLOCK_BYTES) + CONTENT[BLOCK_BYTES:]
    before = proxy.counted["GET"]
    fetching.carry_out(blocks(path, first=1))
    assert proxy.counted["GET"] == before


def test_what_is_damaged_is_asked_for_again_and_never_written(
    fetching: Fetching, proxy: Chaos, tmp_path: Path
) -> None:
    path = tmp_path / "a.bin"
    make_holes(path, len(CONTENT))
    other = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])
    before = proxy.counted["GET"]
    with pytest.raises(VerificationError, match="block at byte 131072 differs") as error:
        fetching.carry_out(blocks(path, content=other))
    assert error.value.where == f"s3://{BUCKET}/place/a.bin"
    assert proxy.counted["GET"] - before == TRIES
    assert path.read_bytes() == bytes(len(CONTENT))


def test_a_file_that_is_damaged_gets_no_name(fetching: Fetching, tmp_path: Path) -> None:
    path = tmp_path / "a.idx"
    request = FetchFile(key="a.bin", path=str(path), num_bytes=len(CONTENT), digest="0" * 32)
    with pytest.raises(VerificationError, match="is damaged"):
        fetching.carry_out(request)
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_gone_is_said(
    fetching: Fetching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{taken.getsockname()[1]}")
        monkeypatch.setattr(stores, "MAX_RETRIES", 1)
        path = tmp_path / "a.bin"
        make_holes(path, len(CONTENT))
        with pytest.raises(StorageError) as error:
            Fetching(Client(f"s3://{BUCKET}/place")).carry_out(blocks(path))
    assert error.value.where == f"s3://{BUCKET}/place/a.bin"
    assert path.read_bytes() == bytes(len(CONTENT))


@pytest.mark.parametrize(("soon_seconds", "tries"), [(60, TRIES), (0, 1)])
def test_what_fails_late_is_not_tried_again(
    fetching: Fetching,
    proxy: Chaos,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    soon_seconds: int,
    tries: int,
) -> None:
    monkeypatch.setattr(stores, "MAX_RETRIES", 0)
    monkeypatch.setattr(fetching_module, "SOON_SECONDS", soon_seconds)
    path = tmp_path / "a.bin"
    make_holes(path, len(CONTENT))
    before = proxy.counted["GET"]
    monkeypatch.setattr(proxy, "error", 1)
    with pytest.raises(StorageError) as error:
        Fetching(Client(f"s3://{BUCKET}/place")).carry_out(blocks(path))
    assert error.value.where == f"s3://{BUCKET}/place/a.bin"
    assert proxy.counted["GET"] - before == tries


def test_a_cache_that_cannot_be_written_is_said(
    fetching: Fetching, proxy: Chaos, tmp_path: Path
) -> None:
    before = proxy.counted["GET"]
    with pytest.raises(StorageError, match="cannot write into the cache") as error:
        fetching.carry_out(blocks(tmp_path / "missing" / "a.bin"))
    assert error.value.where == str(tmp_path / "missing" / "a.bin")
    assert proxy.counted["GET"] == before


def test_a_deleted_block_takes_no_space(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(CONTENT)
    punch_holes(path, [1])
    assert path.read_bytes() == BLOCKS[0] + bytes(BLOCK_BYTES) + BLOCKS[2]
    assert path.stat().st_blocks * 512 < len(CONTENT) - BLOCK_BYTES + 8192

"""Batches of a dataset in a bucket: byte for byte those of the folder, or an error."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from remote_kit import blocks_of_digits, bytes_kept, damage, opener
from resume_kit import COLUMNS, Open, all_bytes, global_batches, resumed

import tokenmill
from cloud_kit.chaos import Chaos, chaos
from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill import Dataset
from tokenmill.core.errors import OutputConflictError, UserError, VerificationError
from tokenmill.load.columns import MaskedLM
from tokenmill.store.cloud.client import Client
from tokenmill.store.digests import BLOCK_BYTES
from tokenmill.store.manifest import read_manifest, write_manifest


@pytest.fixture(scope="module", autouse=True)
def proxy() -> Iterator[Chaos]:
    """A proxy in front of an S3 server, calm unless a test says otherwise."""
    with moto() as port, chaos(port) as faults, pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment(faults.port).items():
            patch.setenv(name, value)
        yield faults


@pytest.fixture
def calm(proxy: Chaos) -> Iterator[Chaos]:
    """The proxy, whose faults end with the test."""
    yield proxy
    proxy.busy = proxy.error = proxy.reset = proxy.cut = proxy.slow_ms = 0


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return blocks_of_digits(tmp_path_factory.mktemp("local") / "first")


@pytest.fixture(scope="module")
def bucket(proxy: Chaos, local: Dataset) -> str:
    return uploaded(local)


def uploaded(dataset: Dataset) -> str:
    """The location of a copy of a dataset in a bucket."""
    location = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    client = Client(location)
    for path in dataset.folder.rglob("*"):
        if path.is_file():
            client.put_file(path.relative_to(dataset.folder).as_posix(), path)
    return location


def run_of(anew: Open) -> tuple[list[Any], list[Any]]:
    """Every batch of a run on one rank, and the states before each, without where data is."""
    (batches,) = anew()
    states, found = [], []
    for batch in batches:
        found.append(batch)
        states.append(batches.state_dict())
        for source in states[-1]["sources"]:
            del source["location"]
    return all_bytes(found), states


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_stats_tell_the_bytes_that_were_fetched(
    num_workers: int, local: Dataset, bucket: str, tmp_path: Path
) -> None:
    """All tokens, once or, with workers that share a cache and begin together, a bit more often."""
    pytest.importorskip("torch")
    tokens = sum(shard.entry.files[0].bytes for shard in local.shards)
    for expected in ((tokens, 2 * tokens), (0, tokens / 10)):  # the second time they are there
        dataset = tokenmill.open(bucket, cache=tmp_path / "cache")
        loader = dataset.loader("a", batch_size=4, restart=True)
        batches = loader.dataloader(num_workers, persistent_workers=num_workers > 0)
        fetched = [loader.stats()["bytes_fetched"]]
        for _ in range(2):
            list(batches)
            fetched.append(loader.stats()["bytes_fetched"])
        assert expected[0] <= fetched[1] - fetched[0] <= expected[1]
        assert fetched[2] == fetched[1]
    assert local.batches("a", batch_size=4).stats()["bytes_fetched"] == 0


@pytest.mark.parametrize("limit", [None, 40 * BLOCK_BYTES], ids=["shared", "limited"])
def test_batches_and_states_are_those_of_the_folder(
    local: Dataset, bucket: str, tmp_path: Path, limit: int | None
) -> None:
    how = {"cache": tmp_path / "cache", "cache_bytes": limit}
    assert run_of(opener([bucket], how)) == run_of(opener([local.folder]))


def test_with_a_limit_fewer_blocks_are_kept_than_are_read(
    local: Dataset, bucket: str, tmp_path: Path
) -> None:
    limit = 6 * BLOCK_BYTES
    how = {"cache": tmp_path / "cache", "cache_bytes": limit, "prefetch_steps": 1}
    options = {"global_batch_size": 1, "shuffle": "none"}
    (batches,) = opener([bucket], how, **options)()
    (expected,) = opener([local.folder], **options)()
    for found, right in zip(batches, expected, strict=True):
        assert all_bytes([found]) == all_bytes([right])
        assert bytes_kept(tmp_path / "cache") <= limit


def test_a_limit_below_what_the_next_steps_read_is_refused(bucket: str, tmp_path: Path) -> None:
    how = {"cache": tmp_path / "cache", "cache_bytes": 2 * BLOCK_BYTES}
    (batches,) = opener([bucket], how)()
    with pytest.raises(UserError) as error:
        next(iter(batches))
    assert str(error.value) == (
        "cache_bytes is too small\n"
        f"  where: {bucket}\n"
        f"  why: it is {2 * BLOCK_BYTES}, but the next steps read 786432 bytes\n"
        "  next: set cache_bytes to at least 786432, or lower prefetch_steps (now 8)"
    )


@pytest.mark.parametrize("world_size", [2, 4])
def test_another_number_of_ranks_resumes_with_the_same_batches(
    local: Dataset, bucket: str, tmp_path: Path, world_size: int
) -> None:
    remote = opener([bucket], {"cache": tmp_path / "cache"}, columns=COLUMNS)
    (alone,) = opener([local.folder], columns=COLUMNS)()
    expected = all_bytes(alone)
    state = remote()[0].state_dict(7)
    ranks = resumed(remote, state, world_size)
    assert all_bytes(global_batches(ranks)) == expected[7:]
    assert alone.digest(9) == remote()[0].digest(9)


def test_mixtures_without_loss_spans_and_masks_are_those_of_folders(
    proxy: Chaos,
    tmp_path: Path,
) -> None:
    folders = [
        blocks_of_digits(tmp_path / str(seed), seed=seed, no_loss="no_loss") for seed in (1, 2)
    ]
    options = {"masked_lm": MaskedLM(mask_id=11, vocab_size=12)}
    how = {"cache": tmp_path / "cache"}
    remote = opener([uploaded(each) for each in folders], how, **options)
    assert run_of(remote) == run_of(opener([each.folder for each in folders], **options))


def test_documents_and_what_a_step_is_made_of_are_those_of_the_folder(
    local: Dataset, bucket: str, tmp_path: Path
) -> None:
    dataset = tokenmill.open(bucket, cache=tmp_path / "cache")
    assert repr(dataset) == repr(local).replace(str(local.folder), bucket)
    assert dataset.batches("a", batch_size=2).explain(1) == local.batches(
        "a", batch_size=2
    ).explain(1)
    assert dataset.shards[1].document(3).tolist() == local.shards[1].document(3).tolist()


@pytest.mark.parametrize(
    ("method", "workers", "limit"),  # one that is spawned: it imports PyTorch
    [("fork", 2, None), ("fork", 2, 40 * BLOCK_BYTES), ("spawn", 1, 40 * BLOCK_BYTES)],
    ids=["fork-shared", "fork-limited", "spawn-limited"],
)
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_workers_of_a_data_loader_give_the_same_batches(
    local: Dataset, bucket: str, tmp_path: Path, method: str, workers: int, limit: int | None
) -> None:
    pytest.importorskip("torch")
    options = {"global_batch_size": 4, "epochs": 1, "seed": 3}
    dataset = tokenmill.open(bucket, cache=tmp_path / "cache", cache_bytes=limit)
    loader = dataset.loader("a", **options)
    loader.batches.batch(0)  # the process that forks has read before
    found = loader.dataloader(workers, multiprocessing_context=method)
    assert all_bytes(found) == all_bytes(local.loader("a", **options))


def test_a_storm_changes_no_batch(local: Dataset, bucket: str, tmp_path: Path, calm: Chaos) -> None:
    calm.busy = calm.error = calm.reset = calm.cut = 0.05
    assert run_of(opener([bucket], {"cache": tmp_path / "cache"})) == run_of(opener([local.folder]))


def test_a_block_that_is_damaged_in_the_bucket_is_refused(
    local: Dataset, proxy: Chaos, tmp_path: Path
) -> None:
    location = uploaded(local)
    name = local.shards[1].entry.files[0].name
    data = bytearray((local.folder / name).read_bytes())
    data[BLOCK_BYTES + 7] ^= 1
    Client(location).put(name, bytes(data))
    (batches,) = opener([location], {"cache": tmp_path / "cache"})()
    before = proxy.counted["GET"]
    with pytest.raises(
        VerificationError, match="the digest of the block at byte 65536 differs"
    ) as error:
        list(batches)
    assert error.value.where == f"{location}/{name}"
    assert proxy.counted["GET"] > before


def test_blocks_that_are_damaged_in_the_cache_are_fetched_again(
    local: Dataset, bucket: str, tmp_path: Path
) -> None:
    how = {"cache": tmp_path / "cache"}
    expected = run_of(opener([bucket], how))
    for path in (tmp_path / "cache").rglob("*.bin"):
        for block in range(3):
            damage(path, block)
    assert run_of(opener([bucket], how)) == expected == run_of(opener([local.folder]))


def test_an_index_that_is_damaged_in_the_cache_is_fetched_again(
    local: Dataset, bucket: str, tmp_path: Path
) -> None:
    how = {"cache": tmp_path / "cache"}
    expected = run_of(opener([bucket], how))
    for pattern in ("*.idx", "*.xxh3"):
        for path in (tmp_path / "cache").rglob(pattern):
            path.write_bytes(bytes(path.stat().st_size))
    assert run_of(opener([bucket], how)) == expected


def test_sizes_are_compared_when_a_dataset_is_opened(local: Dataset, tmp_path: Path) -> None:
    location = uploaded(local)
    client = Client(location)
    name = local.shards[2].entry.files[0].name
    client.put(name, b"short")
    with pytest.raises(VerificationError, match="a file has the wrong size") as error:
        tokenmill.open(location, cache=tmp_path / "cache")
    assert error.value.where == f"{location}/{name}"
    client.delete(name)
    with pytest.raises(VerificationError, match="a file of the dataset is missing") as error:
        tokenmill.open(location, cache=tmp_path / "cache")
    assert error.value.where == f"{location}/{name}"


def test_a_fetcher_that_is_killed_is_replaced(local: Dataset, bucket: str, tmp_path: Path) -> None:
    dataset = tokenmill.open(bucket, cache=tmp_path / "cache")
    batches = dataset.batches("a", global_batch_size=4, seed=3, epochs=2)
    assert dataset.origin is not None
    found = []
    for step, batch in enumerate(batches):
        found.append(batch)
        if step % 5 == 0:
            dataset.origin.fetcher._child._popen.kill()
    assert all_bytes(found) == all_bytes(opener([local.folder])()[0])


def test_nothing_is_cached_in_a_folder_that_holds_something_else(
    bucket: str, tmp_path: Path
) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"mine")
    with pytest.raises(OutputConflictError, match="is not a cache of tokenmill"):
        tokenmill.open(bucket, cache=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_files_of_a_reader_with_a_limit_end_with_it(bucket: str, tmp_path: Path) -> None:
    how = {"cache": tmp_path / "cache", "cache_bytes": 40 * BLOCK_BYTES}
    (batches,) = opener([bucket], how)()
    batches.batch(0)
    assert bytes_kept(tmp_path / "cache") > 0
    del batches
    assert list((tmp_path / "cache").rglob("*.bin")) == []


def test_a_plan_that_was_made_again_is_brought_again(local: Dataset, tmp_path: Path) -> None:
    location = uploaded(local)
    how = {"cache": tmp_path / "cache"}
    run_of(opener([location], how))
    plan = tokenmill.pack(local, name="b", sequence_length=512).plan.folder
    client = Client(location)
    for path in plan.iterdir():
        client.put_file(f"plans/a/{path.name}", path)
    found = np.asarray(opener([location], how)()[0].batch(0)["input_ids"])
    assert (
        found.tolist()
        == local.batches("b", global_batch_size=4, seed=3).batch(0)["input_ids"].tolist()
    )


def test_what_is_missing_is_said(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no cache given"):
        tokenmill.open(bucket)
    with pytest.raises(UserError, match="cannot find a dataset") as error:
        tokenmill.open(f"{bucket}/nothing", cache=tmp_path / "cache")
    assert error.value.where == f"{bucket}/nothing"
    with pytest.raises(UserError, match="cannot find the plan 'c'"):
        tokenmill.open(bucket, cache=tmp_path / "cache").batches("c", batch_size=1)


@pytest.mark.usefixtures("bucket")
@pytest.mark.parametrize(
    "name", ["manifest.json", "plans/a/plan.json", "../a.json", ".private.a.tmp/b"]
)
def test_no_file_of_the_cache_takes_the_place_of_another(
    local: Dataset, tmp_path: Path, name: str
) -> None:
    """A tokenizer file that is a second manifest would be read without having been checked."""
    folder = tmp_path / "dataset"
    shutil.copytree(local.folder, folder)
    manifest = read_manifest(folder)
    files = [msgspec.structs.replace(file, name=name) for file in manifest.tokenizer.files]
    lying = msgspec.structs.replace(manifest.tokenizer, files=files)
    write_manifest(folder, msgspec.structs.replace(manifest, tokenizer=lying))
    location = f"s3://{BUCKET}/{uuid.uuid4().hex}"
    Client(location).put("manifest.json", (folder / "manifest.json").read_bytes())
    with pytest.raises(VerificationError, match="points outside the dataset"):
        tokenmill.open(location, cache=tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tokenmill-cache.json"]

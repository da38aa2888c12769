"""Datasets and plans that lie: an error, never a read outside of a file.

Compiled code reads mapped files by address, so a number that is believed kills the process, or
trains on foreign memory.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from loading_kit import all_batches, digits

import tokenmill
from tokenmill.api import Dataset
from tokenmill.errors import VerificationError
from tokenmill.load.rows import shard_maps
from tokenmill.load.rows.shard_maps import ShardMaps
from tokenmill.read import feed, units
from tokenmill.store.arrays import ArrayFile
from tokenmill.store.canonical import write_sealed
from tokenmill.store.manifest import Manifest, ShardEntry

pytestmark = pytest.mark.usefixtures("without_waiting_for_disks")

Damage = Callable[[Path], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Three hundred documents in several shards, with the plan `a` of rows of 32."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 1 << 10)
        patch.setattr(feed, "PIECE_BYTES", 1 << 10)
        dataset = digits(folder, [str(1 + i % 9) * (1 + i % 30) for i in range(300)])
    assert len(dataset.shards) >= 4
    tokenmill.make_plan(dataset, name="a", sequence_length=32)
    return dataset


@pytest.fixture
def copied(whole: Dataset, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole.folder, tmp_path / "copy"))


def rewrite_array(folder: Path, name: str, change: Callable[[np.ndarray], None]) -> None:
    path = folder / "plans" / "a" / f"{name}.npy"
    values = np.load(path)
    change(values)
    path.unlink()
    file = ArrayFile(path, values.dtype.str)
    file.append(values)
    file.finish()


def negative_offsets(values: np.ndarray) -> None:
    values[2:-1:2] = -(1 << 40)


def huge_offsets(values: np.ndarray) -> None:
    values[2:-1:2] = 1 << 40


@pytest.mark.parametrize("change", [negative_offsets, huge_offsets])
@pytest.mark.parametrize("world_size", [1, 2])
def test_offsets_of_a_plan_are_checked_before_costs_are_summed(
    change: Callable[[np.ndarray], None], world_size: int, copied: Path
) -> None:
    rewrite_array(copied, "offsets", change)
    batches = tokenmill.open(copied).batches("a", global_batch_size=8, world_size=world_size)
    with pytest.raises(VerificationError, match="its offsets are out of order"):
        all_batches(batches)


def test_and_before_a_mixture_counts_tokens(copied: Path) -> None:
    rewrite_array(copied, "offsets", negative_offsets)
    source = tokenmill.Source.of(copied, "a")
    with pytest.raises(VerificationError, match="its offsets are out of order"):
        all_batches(tokenmill.mix_batches([source], global_batch_size=8))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("documents", 2**32 - 1, "it names documents that do not exist"),
        ("starts", 2**32 - 1, "a segment leads out of its document"),
        ("lengths", 2**32 - 1, "a segment leads out of its document"),
        ("lengths", 0, "a segment has no token"),
    ],
)
def test_segments_stay_inside_their_documents(
    name: str, value: int, why: str, copied: Path
) -> None:
    def change(values: np.ndarray) -> None:
        values[7] = value

    rewrite_array(copied, name, change)
    with pytest.raises(VerificationError, match=why):
        all_batches(tokenmill.open(copied).batches("a", batch_size=4))


def rewrite_shard(folder: Path, **changes: int) -> None:
    """Change what the manifest says of the first shard."""
    path = folder / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    first: ShardEntry = msgspec.structs.replace(manifest.shards[0], **changes)
    shards = [first, *manifest.shards[1:]]
    write_sealed(path, msgspec.structs.replace(manifest, shards=shards))


def _read_all(folder: Path) -> None:
    all_batches(tokenmill.open(folder).batches("a", batch_size=4))


@pytest.mark.parametrize("changes", [{"tokens": 1 << 40}, {"documents": 1 << 40}])
def test_a_manifest_that_promises_more_than_its_files_hold_is_refused(
    changes: dict[str, int], copied: Path
) -> None:
    rewrite_shard(copied, **changes)
    with pytest.raises((VerificationError, MemoryError)):
        _read_all(copied)


def test_readers_of_one_dataset_do_not_unmap_each_others_files(
    whole: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_maps, "MOST_MAPPED", 1)
    dataset = tokenmill.open(whole.folder)
    expected = [
        batch["input_ids"].tolist() for batch in all_batches(whole.batches("a", batch_size=2))
    ]
    one, other = (dataset.batches("a", batch_size=2) for _ in range(2))
    for step, ids in enumerate(expected):
        assert one.batch(step)["input_ids"].tolist() == ids
        assert other.batch(len(expected) - 1 - step)["input_ids"].tolist() == expected[-1 - step]


def test_a_block_whose_check_could_not_be_made_is_checked_again(
    whole: Dataset, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (copied / "tokens").glob("*.bin"):
        path.write_bytes(bytes(path.stat().st_size))
    batches = tokenmill.open(copied).batches("a", batch_size=2)
    with monkeypatch.context() as patch:

        def refused(*_: object) -> None:
            raise OSError(24, "Too many open files")

        patch.setattr("tokenmill.load.rows.shard_maps.xxhash.xxh3_64_intdigest", refused)
        with pytest.raises(OSError, match="Too many open files"):
            batches.batch(0)
    with pytest.raises(VerificationError, match="the digest of a block differs"):
        batches.batch(0)


def test_a_shard_that_was_changed_while_it_was_not_mapped_is_checked_again(
    copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_maps, "MOST_MAPPED", 1)
    dataset = tokenmill.open(copied)
    maps = ShardMaps(dataset)
    maps.require(np.array([0]))
    first = int(maps.first_blocks[0])
    maps.check(np.array([first]))
    maps.require(np.array([1]))
    path = dataset.shards[0].path("bin")
    path.write_bytes(path.read_bytes())  # the same bytes, at another time
    maps.require(np.array([0]))
    assert not maps.checked[first]
    maps.check(np.array([first]))
    assert maps.checked[first]


def test_a_table_of_ranges_without_loss_is_checked(tmp_path: Path) -> None:
    dataset = digits(tmp_path, ["123", "456"], no_loss=[[[0, 1]], [[1, 2]]])
    tokenmill.make_plan(dataset, name="a", sequence_length=4)
    path = dataset.shards[0].path("parquet")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(VerificationError, match="a file of the dataset is damaged"):
        tokenmill.open(dataset.folder).batches("a", batch_size=1).batch(0)

"""Opening datasets for one command; for a bucket, with a temporary cache folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tokenmill.store.cloud.names import is_remote
from tokenmill.store.copying.ends import open_end
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.files import storage_errors
from tokenmill.store.manifest import MANIFEST_NAME, RUN_NAME
from tokenmill.store.remote.fetcher import Fetcher
from tokenmill.store.remote.origin import Origin, open_origin


@contextmanager
def dataset_at(name: str | Path) -> Iterator[Dataset]:
    """Open a dataset in a folder or a bucket.

    Raises:
        UserError: the dataset does not exist.
        VerificationError: the dataset is damaged.
        StorageError: the bucket, or the folder for temporary files, fails.
    """
    if not is_remote(name):
        yield Dataset(name)
        return
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as folder:
        origin = open_origin(str(name), Path(folder, "cache"))
        yield Dataset(origin.folder, origin)


@contextmanager
def dataset_to_verify(name: str | Path) -> Iterator[Dataset]:
    """Open a dataset like `dataset_at`, but download shards only in `whole_shard`.

    The sizes of its files are not checked.
    """
    if not is_remote(name):
        yield Dataset(name)
        return
    end = open_end(name, "a dataset")
    data, manifest = end.read_manifest()
    run = end.store.read(RUN_NAME)
    with tempfile.TemporaryDirectory(prefix="tokenmill-") as temporary:
        folder = Path(temporary)
        with storage_errors("write a temporary file", folder):
            (folder / MANIFEST_NAME).write_bytes(data)
            if run is not None:
                (folder / RUN_NAME).write_bytes(run)
        origin = Origin(end.location, folder, None, 0, Fetcher(end.location))
        origin.obtain(manifest.tokenizer.files)
        origin.obtain_plans(origin.listed("plans"))
        yield Dataset(folder, origin)


@contextmanager
def whole_shard(dataset: Dataset, shard: Shard) -> Iterator[None]:
    """Provide all files of a shard on this machine; downloaded files are verified.

    Raises:
        VerificationError: a file is damaged.
        StorageError: the bucket, or the folder for temporary files, fails.
    """
    if dataset.origin is None:
        yield
        return
    try:
        dataset.origin.obtain(shard.entry.files)
        yield
    finally:
        shard.release()
        for file in shard.entry.files:
            (dataset.folder / file.name).unlink(missing_ok=True)

"""Opening a dataset, and what can be asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.cloud.names import ObjectName, is_remote
from tokenmill.encode.encodings import RankEncoding
from tokenmill.errors import UserError
from tokenmill.run.recipe.spellings import parse_bytes
from tokenmill.store import dataset as _store
from tokenmill.store.remote.origin import open_origin

if TYPE_CHECKING:
    from tokenmill.api.options import LoaderArguments
    from tokenmill.load.batches import Batches
    from tokenmill.load.loader import Loader
    from tokenmill.load.steps.curriculum import Curriculum
    from tokenmill.store.copying.copy import CopyReport
    from tokenmill.store.plan import Plan


class Dataset(_store.Dataset):
    """A dataset, opened: its documents, and the batches of its plans."""

    def batches(
        self,
        plan: Plan | str | Path | None = None,
        *,
        curriculum: Curriculum | None = None,
        **options: Unpack[LoaderArguments],
    ) -> Batches:
        """Batches of NumPy arrays; without a plan, those of the only one.

        Options are the fields of OrderOptions, BatchOptions and Targets.

        Raises:
            UserError: an option is invalid or unknown, or there is no such plan.
        """
        from tokenmill.load.opening import open_batches

        return open_batches(self, plan, curriculum=curriculum, **options)

    def loader(
        self,
        plan: Plan | str | Path | None = None,
        *,
        curriculum: Curriculum | None = None,
        prefetch: int = 2,
        pin_memory: bool | None = None,
        **options: Unpack[LoaderArguments],
    ) -> Loader:
        """`batches`, as PyTorch tensors: for a loop, a DataLoader, or a trainer.

        Args:
            plan: as in `batches`.
            curriculum: as in `batches`.
            prefetch: batches that a thread makes while the trainer computes; 0: there is none.
            pin_memory: have tensors in pinned memory; None: if CUDA is available.
            options: as in `batches`.

        Raises:
            UserError: as `batches`, or PyTorch is not installed.
        """
        from tokenmill.api.loading import as_tensors

        batches = self.batches(plan, curriculum=curriculum, **options)
        return as_tensors(batches, prefetch, pin_memory)


def open(
    folder: str | Path,
    *,
    cache: str | Path | None = None,
    cache_bytes: int | str | None = None,
    prefetch_steps: int = 8,
) -> Dataset:
    """Open a dataset in a folder, or in a bucket: s3://bucket/corpus, gs://..., az://...

    The manifest and the sizes of all files are checked; web servers, which list nothing, say no
    sizes. Of a bucket, the manifest is copied into `cache`; the index of a shard comes when batches
    first need the shard, and tokens in blocks of 64 KiB; all are verified before they count. A
    store that does not answer fails a batch after about two minutes.

    Args:
        folder: where the dataset is.
        cache: for a bucket: a new or empty folder, or one that was a cache before. Processes of a
            machine may share it.
        cache_bytes: the most bytes of tokens that each loader keeps in files of its own, as a
            number or as "200GB"; eight ranks of a machine, or eight workers of a DataLoader, may
            keep eight times as much. None: all that were read, shared by all loaders.
        prefetch_steps: steps whose blocks are fetched ahead.

    Raises:
        UserError: there is no dataset, or an option is missing or wrong.
        VerificationError: the dataset is damaged.
        StorageError: the bucket or the cache fails.
    """
    if not is_remote(folder):
        if cache is not None or cache_bytes is not None:
            why = f"{folder} is read where it is"
            raise UserError("only datasets in a bucket are cached", why=why)
        return Dataset(folder)
    if cache is None:
        raise UserError(
            "a dataset in a bucket is read through a cache folder",
            where=str(ObjectName.parse(str(folder))),
            hint='open(..., cache="DIR"), or copy the dataset: tokenmill cp',
        )
    try:
        limit = parse_bytes(cache_bytes) if isinstance(cache_bytes, str) else cache_bytes
    except ValueError as error:
        raise UserError(
            "cache_bytes is not a size", where=str(cache_bytes), why=str(error)
        ) from None
    origin = open_origin(str(folder), cache, limit, prefetch_steps)
    return Dataset(origin.folder, origin)


def opened(dataset: _store.Dataset | str | Path) -> _store.Dataset:
    """A dataset that may already be open."""
    return dataset if isinstance(dataset, _store.Dataset) else Dataset(dataset)


def check_tokenizer(
    dataset: Dataset | str | Path,
    tokenizer: str | Path | object,
    *,
    encoding: str | RankEncoding = "",
) -> str:
    """Check that a tokenizer gives texts the ids in the dataset; returns its fingerprint.

    A tokenizer is what `build` takes, or a dataset, for the tokenizer that it carries. If an
    object names `eos_token_id` and `pad_token_id`, these must match the dataset too.

    Raises:
        UserError: it is another tokenizer; the message says what differs.
    """
    from tokenmill.report.tokenizers.check import check_tokenizer

    return check_tokenizer(opened(dataset), tokenizer, encoding=encoding)


def copy_dataset(
    dataset: Dataset | str | Path, destination: str | Path, *, verify: bool = False
) -> CopyReport:
    """Copy a dataset and its plans between folders and buckets; the same call again resumes.

    Every file is compared with its digest while it is read; with `verify`, so is what arrived.

    Raises:
        UserError: there is no dataset, or a place cannot be used.
        OutputConflictError: the destination holds something else.
        VerificationError: a file is damaged.
        StorageError: a place fails.
    """
    from tokenmill.store.copying.copy import copy_dataset

    source = dataset.location if isinstance(dataset, _store.Dataset) else dataset
    return copy_dataset(source, destination, verify=verify)

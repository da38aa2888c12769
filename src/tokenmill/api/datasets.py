"""Opening a dataset, and what can be asked of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from tokenmill.store import dataset as _store

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
        **options: Unpack[LoaderArguments],
    ) -> Loader:
        """`batches`, as PyTorch tensors: for a loop, a DataLoader, or a trainer."""
        from tokenmill.api.loading import as_tensors

        return as_tensors(self.batches(plan, curriculum=curriculum, **options))


def open(folder: str | Path) -> Dataset:
    """Open a dataset on disk; checks its manifest and the sizes of all files.

    Raises:
        UserError: the folder holds no dataset.
        VerificationError: the dataset is damaged.
    """
    return Dataset(folder)


def opened(dataset: _store.Dataset | str | Path) -> _store.Dataset:
    """A dataset that may already be open."""
    return dataset if isinstance(dataset, _store.Dataset) else Dataset(dataset)


def check_tokenizer(
    dataset: Dataset | str | Path, tokenizer: str | Path | object, *, encoding: str = ""
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

    source = dataset.folder if isinstance(dataset, _store.Dataset) else dataset
    return copy_dataset(source, destination, verify=verify)

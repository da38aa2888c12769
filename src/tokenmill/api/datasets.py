"""`tokenmill.open`, `Dataset`, and functions that check or copy a dataset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tokenmill.core.charts import Library, histogram
from tokenmill.core.errors import UserError
from tokenmill.core.html import Html, card
from tokenmill.core.values import counted, parse_bytes
from tokenmill.store import dataset as _store
from tokenmill.store.cloud.names import ObjectName, is_remote
from tokenmill.store.remote.origin import open_origin

if TYPE_CHECKING:
    from tokenmill.api.options import LoaderArguments
    from tokenmill.load.batches import Batches
    from tokenmill.load.loader import Loader
    from tokenmill.load.steps.curriculum import Curriculum
    from tokenmill.store.manifest import Manifest
    from tokenmill.store.plan import Plan


class Dataset(_store.Dataset):
    """An open dataset: its documents, and batches from its plans.

    `tokenmill.open` returns one.
    """

    def batches(
        self,
        plan: Plan | str | Path | None = None,
        *,
        curriculum: Curriculum | None = None,
        **options: Unpack[LoaderArguments],
    ) -> Batches:
        """Return an iterator over batches of NumPy arrays.

        The options decide the size and order of batches (`OrderOptions`), their arrays
        (`BatchOptions`), and which tokens have labels (`Targets`).

        Args:
            plan: name or folder of a plan. If the dataset has a single plan, you can omit it.
            curriculum: an order of the sequences that replaces the shuffled one.
            options: fields of `OrderOptions`, `BatchOptions` and `Targets`, for example
                `batch_size`, `rank`, `world_size`, `seed`, `columns` and `labels`.

        Raises:
            UserError: an option is invalid or unknown, or the plan does not exist.
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
        """Return an iterator over batches of PyTorch tensors, for a training loop or a trainer.

        Options are those of `batches`.

        Args:
            plan: as for `batches`.
            curriculum: as for `batches`.
            prefetch: number of batches that a background thread prepares; 0 turns it off.
            pin_memory: whether to put tensors in pinned memory. None: if CUDA is available.
            options: as for `batches`.

        Raises:
            UserError: as for `batches`, or PyTorch is not installed.
        """
        from tokenmill.load.opening import as_tensors

        batches = self.batches(plan, curriculum=curriculum, **options)
        return as_tensors(batches, prefetch, pin_memory)

    @property
    def plot(self) -> DatasetCharts:
        """Charts of the dataset, drawn by Altair or Matplotlib: `dataset.plot.lengths()`."""
        return DatasetCharts(self)

    def _repr_html_(self) -> str:
        """Return a table and the lengths of up to 65,536 documents, for notebooks."""
        title = "View" if self.is_view else "Dataset"
        return dataset_card(title, self.manifest, self.location, self)


class DatasetCharts:
    """Charts of a dataset, drawn by Altair or Matplotlib."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def lengths(self, library: Library | None = None) -> Any:
        """Draw how many documents there are of each length in tokens.

        This reads the index of every shard, and downloads it from a bucket. `library` is "altair"
        or "matplotlib"; without it, Altair draws if it is installed.
        """
        from tokenmill.reports.lengths.counts import lengths_of_dataset

        counts = lengths_of_dataset(self._dataset, lambda stage, done, total: None)
        bins = counts.bins(per_octave=2)
        title = f"Lengths of {counted(counts.num_documents, 'document')}"
        names, documents = ("tokens of a document", "documents"), [each.documents for each in bins]
        edges = [bins[0].low, *(each.high + 1 for each in bins)]
        return histogram(title, names, edges, documents, library, logarithmic=True)


def dataset_card(
    title: str, manifest: Manifest, location: str, dataset: Dataset | None, built: str = ""
) -> Html:
    """The facts of a manifest, and if the dataset is in a folder, the lengths of some documents."""
    from tokenmill.reports.contents import dataset_facts, view_facts
    from tokenmill.reports.lengths.counts import length_picture
    from tokenmill.reports.samples import SMALL, sampled_lengths

    view = view_facts(dataset) if dataset is not None else None
    facts = [*dataset_facts(manifest, location, view), ("sources", f"{len(manifest.sources):,}")]
    facts += [("built in", built)] if built else []
    facts += [("plans", ", ".join(dataset.plans) or "none")] if dataset is not None else []
    if dataset is None or dataset.origin is not None or not dataset.num_documents:
        return card(title, facts)
    sample = sampled_lengths(dataset, *SMALL)
    lengths, half = sample.counts.lengths, sample.counts.percentile(50)
    text = f"{lengths[0]:,} to {lengths[-1]:,} tokens; half have at most {half:,}"
    text += "" if sample.is_whole else f" (of {sample.documents:,} documents)"
    return card(title, [*facts, ("lengths", text)], length_picture(sample.counts.bins(2)))


def open(
    folder: str | Path,
    *,
    cache: str | Path | None = None,
    cache_bytes: int | str | None = None,
    prefetch_steps: int = 8,
) -> Dataset:
    """Open a dataset in a local folder or in a bucket.

    Opening checks the manifest and the sizes of all files. Web servers do not report sizes, so
    there only the manifest is checked.

    From a bucket, only what batches need is downloaded: the index of a shard when it is first
    used, and tokens in blocks of 64 KiB. Everything is verified before use. If the store does not
    answer, the batch fails after about two minutes.

    Args:
        folder: a folder, or a name such as `s3://bucket/corpus`, `gs://...`, `az://...`.
        cache: for a bucket: a new or empty folder, or one that was used as a cache before.
            Processes of one machine can share it.
        cache_bytes: the most bytes of tokens that each loader keeps, as a number or a text like
            "200GB". Each rank and each DataLoader worker has its own limit, so eight of them can
            use eight times as much. None: keep everything, shared by all loaders.
        prefetch_steps: number of steps to download ahead.

    Raises:
        UserError: the dataset does not exist, or an option is missing or wrong.
        VerificationError: the dataset is damaged.
        StorageError: the bucket or the cache cannot be read or written.
    """
    if not is_remote(folder):
        if cache is not None or cache_bytes is not None:
            why = f"{folder} is a local folder, and only datasets in a bucket use a cache"
            hint = "leave out cache and cache_bytes"
            raise UserError("a local dataset takes no cache", why=why, hint=hint)
        return Dataset(folder)
    if cache is None:
        raise UserError(
            "no cache given for a dataset in a bucket",
            where=str(ObjectName.parse(str(folder))),
            hint='name a folder: open(..., cache="DIR"); or copy the dataset with tokenmill cp',
        )
    try:
        limit = parse_bytes(cache_bytes) if isinstance(cache_bytes, str) else cache_bytes
    except ValueError as error:
        raise UserError(
            f"cache_bytes must be a size, got {cache_bytes!r}", why=str(error)
        ) from None
    origin = open_origin(str(folder), cache, limit, prefetch_steps)
    return Dataset(origin.folder, origin)


def opened(dataset: _store.Dataset | str | Path) -> _store.Dataset:
    """Open a dataset unless it is open already."""
    return dataset if isinstance(dataset, _store.Dataset) else Dataset(dataset)

"""Datasets in a notebook: a small table with a picture, and charts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tokenmill.core.charts import Library
from tokenmill.core.html import Html, card
from tokenmill.core.values import counted
from tokenmill.reports.contents import dataset_facts
from tokenmill.reports.lengths.counts import (
    LengthCounts,
    length_chart,
    lengths_of_dataset,
    some_lengths,
)
from tokenmill.store.dataset import Dataset
from tokenmill.store.manifest import Manifest


class DatasetCharts:
    """Charts of a dataset, drawn by Altair or Matplotlib, whichever is installed."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def lengths(self, library: Library | None = None) -> Any:
        """Draw how many documents there are of each length in tokens.

        This reads the index of every shard, and of a dataset in a bucket downloads it.

        Args:
            library: "altair" or "matplotlib". None: Altair if it is installed.

        Returns:
            An `altair.Chart` or a `matplotlib.figure.Figure`.

        Raises:
            UserError: the library is not installed.
            VerificationError: an index is damaged.
        """
        counts = lengths_of_dataset(self._dataset, lambda stage, done, total: None)
        return length_chart(counts.bins(per_octave=2)).draw(library)


def dataset_card(
    title: str,
    manifest: Manifest,
    location: str,
    dataset: Dataset | None,
    more: Iterable[tuple[str, str]] = (),
) -> Html:
    """The facts of a manifest, and if the dataset is in a folder, the lengths of some documents."""
    facts = [*dataset_facts(manifest, location), ("sources", f"{len(manifest.sources):,}"), *more]
    if dataset is None:
        return card(title, facts)
    facts.append(("plans", ", ".join(dataset.plans) or "none"))
    if dataset.origin is not None or not dataset.num_documents:
        return card(title, facts)
    counts = some_lengths(dataset)
    chart = length_chart(counts.bins(per_octave=2))
    facts.append(("lengths", lengths_text(counts, dataset)))
    return card(title, facts, chart.picture())


def lengths_text(counts: LengthCounts, dataset: Dataset) -> str:
    """The range of lengths, and of how many documents they are if not of all."""
    known, half = counts.num_documents, counts.percentile(50)
    text = f"{counts.lengths[0]:,} to {counts.lengths[-1]:,} tokens; half have at most {half:,}"
    return text if known == dataset.num_documents else f"{text} (of {counted(known, 'document')})"

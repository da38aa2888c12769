"""Check plans against their digests, options and dataset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tokenmill.core.errors import VerificationError
from tokenmill.core.records import Advance, Int64Array, Segments
from tokenmill.packing.long_documents import pieces_of
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import figures_of
from tokenmill.packing.strategies import options_of_plan
from tokenmill.packing.window import row_format, sums
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.plan import Plan, open_plan


def check_plan(dataset: Dataset, plan: Plan, advance: Advance) -> None:
    """Check the digests of a plan, and that its segments fit their documents and sequences.

    Raises:
        VerificationError: something differs.
    """
    if plan.manifest.dataset_id != dataset.manifest.dataset_id:
        raise plan.damaged("it belongs to another dataset")
    plan.check_arrays()
    options = options_of_plan(plan.manifest.options, str(plan.folder))
    figures = figures_of(plan)
    if plan.rows != row_format(options, figures.most_segments):
        raise plan.damaged("its rows do not follow from its options")
    if sum(window.shards for window in plan.manifest.windows) != len(dataset.shards):
        raise plan.damaged("its windows do not cover the dataset")
    first_shard = first_document = num_tokens = 0
    dataset.announce_pass()
    for number, window in enumerate(plan.manifest.windows):
        shards = dataset.shards[first_shard : first_shard + window.shards]
        lengths = np.concatenate([_lengths(shard) for shard in shards]).astype(np.int32)
        sequences = slice(*plan.window_starts[number : number + 2].tolist())
        num_tokens += _check_window(plan, options, sequences, (first_document, lengths))
        first_shard += window.shards
        first_document += len(lengths)
        advance("plan", number + 1, len(plan.manifest.windows))
    if num_tokens != figures.tokens_in_sequences:
        raise plan.damaged("its tokens differ from its figures")


def _lengths(shard: Shard) -> Int64Array:
    """The length of each document; 0 for those that a view leaves out: no segment fits them."""
    lengths = shard.read_lengths()
    if shard.selected is not None:
        lengths = np.where(shard.selected, lengths, 0)
        shard.release()
    return lengths


def check_plans(dataset: Dataset, names: Sequence[str | Path], advance: Advance) -> None:
    """Check plans of a dataset, each given by its name or its folder.

    Raises:
        VerificationError: some are damaged; the message lists them.
    """
    problems: list[str] = []
    for name in names:
        try:
            check_plan(dataset, open_plan(dataset, name), advance)
        except VerificationError as error:
            problems.append(f"{name}: {error.why}")
    if problems:
        raise VerificationError(
            f"the dataset is intact, but {len(problems)} of its plans are damaged",
            where=dataset.location,
            why="\n       ".join(problems),
            hint="plan again with tokenmill pack --overwrite",
        )


def _check_window(
    plan: Plan,
    options: PackOptions,
    sequences: slice,
    documents: tuple[int, npt.NDArray[np.int32]],
) -> int:
    """Check the sequences of a window, and return the number of tokens in them."""
    first_document, lengths = documents
    offsets: Int64Array = np.asarray(plan.offsets[sequences.start : sequences.stop + 1])
    if (offsets[1:] <= offsets[:-1]).any():
        raise plan.damaged("a sequence has no segment")
    part = slice(int(offsets[0]), int(offsets[-1]))
    local = plan.documents[part].astype(np.int64) - first_document
    starts, taken = plan.starts[part].astype(np.int64), plan.lengths[part].astype(np.int64)
    if len(local) and (local.min() < 0 or local.max() >= len(lengths)):
        raise plan.damaged("a segment belongs to a document outside its window")
    if (taken > options.length).any():
        raise plan.damaged("a segment is longer than the longest allowed sequence")
    if (taken < 1).any() or (starts + taken > lengths[local]).any():
        raise plan.damaged("a segment reaches outside its document")
    segments = Segments(*(values.astype(np.int32) for values in (local, starts, taken)))
    sizes = sums(pieces_of(segments, lengths, options).sizes, offsets - offsets[0])
    if (sizes > options.length).any():
        raise plan.damaged("a sequence is too long")
    return int(taken.sum())

"""What a run has given until the step of a state: documents and tokens by source and by column.

    rows of each source ─order─▶ times of each sequence ─plan─▶ segments ─▶ documents of each shard

It is counted shard by shard from the plans, and no step is made. Memory: the shard's documents, and
about 40 bytes for each given segment of the plans' windows at that shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from msgspec import UnsetType

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance, Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.load.legs import describe_leg, name_of
from tokenmill.load.seen import Seen
from tokenmill.load.steps.state import LoaderState
from tokenmill.packing.rest import TAKEN_OUT, GivenSegments, ShardSegments
from tokenmill.reports.given_data import Amount, GivenData, GivenDataset, GivenInput, GivenSource
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.plan import Plan

_Part = tuple[GivenSegments, GivenSource, int]
"""A source of the run, and the number that its plan gives to a shard."""
UNKNOWN = "(not kept)"
"""The value of documents without the column."""


def provenance_of(
    state: LoaderState,
    datasets: Sequence[Dataset] = (),
    by: str | None = None,
    advance: Advance = lambda stage, done, total: None,
) -> GivenData:
    """Count what a run has given before the step of its state.

    Args:
        state: the state of a loader.
        datasets: open datasets, for data that has moved.
        by: a kept column, or `subset`, by whose values documents are counted as well.
        advance: called to show progress.

    Raises:
        UserError: data is missing, no dataset has the column, or the state is one of a curriculum.
        VerificationError: a plan or a dataset is damaged.
    """
    seen = Seen(state, datasets)
    numbers = sorted({number for leg in state.all_legs for number in leg.sources})
    sources = [_source(seen, number) for number in numbers]
    homes: dict[str, tuple[Dataset, list[_Part]]] = {}
    for segments, given in sources:
        first = 0
        for root in segments.dataset.roots:
            parts = homes.setdefault(root.manifest.dataset_id, (root, []))[1]
            parts.append((segments, given, first))
            first += len(root.shards)
    roots = [root for root, _ in homes.values()]
    kept = {name for root in roots for name in root.policies.read.keep}
    if by not in (None, "subset", *kept):
        why = f"they keep {', '.join(sorted(kept)) or 'none'}"
        raise UserError(f"no dataset has the column {by!r}", why=why, hint="build with --keep")
    found = GivenData(
        step=state.step,
        amount=Amount(),
        legs=[(leg.first_step, describe_leg(state, leg)) for leg in state.all_legs],
        sources=[given for _, given in sources],
        datasets=[_described(root) for root in roots],
        inputs=[],
        by=by,
    )
    total, done = sum(len(root.shards) for root in roots), 0
    for root, parts in homes.values():
        inputs: dict[int, Amount] = defaultdict(Amount)
        root.announce_pass()
        for number, shard in enumerate(root.shards):
            here = [(segments, given, first + number) for segments, given, first in parts]
            _count_shard(found, inputs, root, shard, here)
            done += 1
            advance("counting", done, total)
        for number, amount in sorted(inputs.items()):
            entry = root.manifest.sources[number]
            found.inputs.append(
                GivenInput(
                    name=entry.name,
                    dataset=root.location,
                    origin="" if isinstance(entry.origin, UnsetType) else entry.origin,
                    xxh3_128=entry.xxh3_128,
                    amount=amount,
                )
            )
    return found


def _source(seen: Seen, number: int) -> tuple[GivenSegments, GivenSource]:
    reader, state = seen.batches.reader(number), seen.state.sources[number]
    dataset, plan = reader.dataset, reader.plan
    rows = sum(seen.rows[number])
    legs = seen.state.all_legs
    given = GivenSource(
        name=name_of(state),
        dataset=state.dataset,
        location=dataset.location,
        plan=state.plan,
        plan_name=plan.folder.name,
        options=plan.manifest.options,
        first_step=min(leg.first_step for leg in legs if number in leg.sources),
        rows=rows,
        epochs=rows / max(len(plan), 1),
        amount=Amount(),
        question=dataset.question,
        left_out=sum(root.num_documents for root in dataset.roots) - dataset.num_documents,
        left_out_tokens=sum(root.num_tokens for root in dataset.roots) - dataset.num_tokens,
        left_out_given=0,
        taken_out=_taken_out(plan, "left_out_documents"),
        taken_out_tokens=_taken_out(plan, "left_out_tokens"),
    )
    return GivenSegments(dataset, plan, partial(seen.times, number)), given


def _taken_out(plan: Plan, figure: str) -> int:
    """Return what a view took out of the epoch of which a plan is the rest; 0 if it is none."""
    counts = plan.manifest.figures.get(figure)
    return int(counts.get(TAKEN_OUT, 0)) if isinstance(counts, dict) else 0


def _count_shard(
    found: GivenData,
    inputs: dict[int, Amount],
    root: Dataset,
    shard: Shard,
    here: Sequence[_Part],
) -> None:
    """Count what was given of a shard, which the plan of each source has by a number of its own."""
    lengths = shard.read_lengths()
    parts = [segments.of_shard(number, lengths) for segments, _, number in here]
    zeros = np.zeros(len(lengths), np.int64)
    for (_, given, _), part in zip(here, parts, strict=True):
        for _, counts in _counted(lengths, part, zeros):
            given.amount.add(counts)
    joined = ShardSegments(*map(np.concatenate, zip(*parts, strict=True)))
    if not len(joined.documents):
        return
    for number, counts in _counted(lengths, joined, root.source_numbers(shard).astype(np.int64)):
        inputs[number].add(counts)
        found.amount.add(counts)
    if found.by is not None:
        values, numbers = _values(shard, found.by)
        for number, counts in _counted(lengths, joined, numbers):
            found.values.setdefault(values[number], Amount()).add(counts)
    is_given = np.bincount(joined.documents, minlength=len(lengths)) > 0
    for segments, given, number in here:
        own = segments.dataset.shards[number]
        if own.selected is not None:
            given.left_out_given += int((is_given & ~own.selected).sum())
            own.release()
    shard.release()


def _counted(
    lengths: Int64Array, segments: ShardSegments, keys: Int64Array
) -> Iterator[tuple[int, list[int]]]:
    """Yield each key of documents, and the counts of an `Amount` of those with the key.

    Args:
        lengths: tokens of all documents, shape (num_documents,).
        segments: the given segments.
        keys: keys of all documents, from 0, shape (num_documents,).
    """
    documents, starts, sizes, times = segments
    begins = offsets_from_lengths(lengths)[documents] + starts
    order = np.argsort(begins)
    begins, ends, documents = begins[order], (begins + sizes)[order], documents[order]
    before = np.maximum.accumulate(np.concatenate([[0], ends]))[:-1]
    new = np.maximum(ends - np.maximum(begins, before), 0)
    sums = np.zeros((2, len(lengths)), np.int64)
    np.add.at(sums[0], documents, new)
    np.add.at(sums[1], documents, (sizes * times)[order])
    touched = np.flatnonzero(sums[1])
    whole = sums[0, touched] == lengths[touched]
    columns = np.stack([np.ones(len(touched), np.int64), whole, *sums[:, touched]], axis=1)
    present, places = np.unique(keys[touched], return_inverse=True)
    counts = np.zeros((len(present), 4), np.int64)
    np.add.at(counts, places, columns)
    yield from zip(present.tolist(), counts.tolist(), strict=True)


def _values(shard: Shard, name: str) -> tuple[list[str], Int64Array]:
    """Return the values of a column, and the number of each document's, shape (num_documents,)."""
    import pyarrow.compute as pc

    column = name if name == "subset" else f"column.{name}"
    rows = shard.documents([column])
    if column not in rows.column_names:
        return [UNKNOWN], np.zeros(shard.entry.documents, np.int64)
    values = rows.column(column).cast("string").combine_chunks()
    encoded = pc.fill_null(values, UNKNOWN).dictionary_encode()
    numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return encoded.dictionary.to_pylist(), numbers


def _described(root: Dataset) -> GivenDataset:
    manifest = root.manifest
    return GivenDataset(
        location=root.location,
        dataset=manifest.dataset_id,
        documents=root.num_documents,
        tokens=root.num_tokens,
        tokenizer=manifest.tokenizer.sha256,
        tokenizer_kind=manifest.tokenizer.kind,
        policies=manifest.policies,
    )

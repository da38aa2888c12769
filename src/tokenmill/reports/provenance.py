"""What a run has given until the step of a state: documents and tokens by source and by column.

    rows of each source ─order─▶ times of each sequence ─plan─▶ segments ─▶ documents of each shard

It is counted shard by shard from the plans, and no step is made. Memory: the shard's documents, and
about 40 bytes for each given segment of the plans' windows at that shard.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import UnsetType

from tokenmill.core.errors import UserError
from tokenmill.core.records import Advance, Int64Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.load.leg_texts import describe_leg, legs_of
from tokenmill.load.legs import name_of
from tokenmill.load.seen import Seen
from tokenmill.load.state import LoaderState
from tokenmill.reports.given_data import Amount, GivenData, GivenDataset, GivenInput, GivenSource
from tokenmill.store.dataset import Dataset, Shard

UNKNOWN = "(not kept)"
"""The value of documents without the column."""
NOTHING = np.empty(0, np.int64)


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
    readers = [_GivenSegments(seen, number) for number in range(len(state.sources))]
    homes: dict[str, tuple[Dataset, list[tuple[_GivenSegments, int]]]] = {}
    for reader in readers:
        first = 0
        for root in reader.dataset.roots:
            homes.setdefault(root.manifest.dataset_id, (root, []))[1].append((reader, first))
            first += len(root.shards)
    roots = [root for root, _ in homes.values()]
    if by not in (None, "subset") and not any(by in _kept(root) for root in roots):
        names = sorted({name for root in roots for name in _kept(root)})
        why = f"they keep {', '.join(names) or 'none'}"
        raise UserError(f"no dataset has the column {by!r}", why=why, hint="build with --keep")
    found = GivenData(
        step=state.step,
        amount=Amount(),
        legs=[(leg.first_step, describe_leg(state, leg)) for leg in legs_of(state)],
        sources=[reader.source for reader in readers],
        datasets=[_described(root) for root in roots],
        inputs=[],
        by=by,
    )
    total, done = sum(len(root.shards) for root in roots), 0
    for root, parts in homes.values():
        inputs: dict[int, Amount] = defaultdict(Amount)
        root.announce_pass()
        for number, shard in enumerate(root.shards):
            here = [(reader, first + number) for reader, first in parts]
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


class _GivenSegments:
    """The segments that a source of a run has given, window by window."""

    def __init__(self, seen: Seen, number: int) -> None:
        reader, state = seen.batches.reader(number), seen.state.sources[number]
        self.dataset, self.plan = reader.dataset, reader.plan
        self._times: Callable[[Int64Array], Int64Array] = lambda each: seen.times(number, each)
        self._first_shards = offsets_from_lengths([w.shards for w in self.plan.manifest.windows])
        counts = [shard.entry.documents for shard in self.dataset.shards]
        self._first_documents = offsets_from_lengths(counts)
        self._window, self._segments = -1, (NOTHING, NOTHING, NOTHING, NOTHING)
        legs = (leg.first_step for leg in legs_of(seen.state) if number in leg.sources)
        rows = sum(seen.rows[number])
        all_documents = sum(root.num_documents for root in self.dataset.roots)
        all_tokens = sum(root.num_tokens for root in self.dataset.roots)
        self.source = GivenSource(
            name=name_of(state),
            dataset=state.dataset,
            location=self.dataset.location,
            plan=state.plan,
            plan_name=self.plan.folder.name,
            options=self.plan.manifest.options,
            first_step=min(legs),
            rows=rows,
            epochs=rows / max(len(self.plan), 1),
            amount=Amount(),
            question=self.dataset.question,
            left_out=all_documents - self.dataset.num_documents,
            left_out_tokens=all_tokens - self.dataset.num_tokens,
            left_out_given=0,
        )

    def of_shard(self, shard: int) -> tuple[Int64Array, ...]:
        """Return the documents, starts, lengths and times of the given segments in a shard.

        Documents are numbered in the shard.
        """
        window = int(np.searchsorted(self._first_shards, shard, side="right")) - 1
        if window != self._window:
            self._window, self._segments = window, self._of_window(window)
        first, stop = self._first_documents[shard : shard + 2].tolist()
        part = slice(*np.searchsorted(self._segments[0], [first, stop]).tolist())
        documents, starts, lengths, times = (each[part] for each in self._segments)
        return documents - first, starts, lengths, times

    def _of_window(self, window: int) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        plan = self.plan
        first, stop = plan.window_starts[window : window + 2].tolist()
        offsets = np.asarray(plan.offsets[first : stop + 1])
        if (np.diff(offsets) < 0).any():
            raise plan.damaged("its offsets are out of order")
        times = np.repeat(self._times(np.arange(first, stop)), np.diff(offsets))
        used = np.flatnonzero(times)
        at = used + int(offsets[0])
        at = at[np.argsort(plan.documents[at], kind="stable")]
        arrays = (plan.documents, plan.starts, plan.lengths)
        documents, starts, lengths = (each[at].astype(np.int64) for each in arrays)
        return documents, starts, lengths, times[at - int(offsets[0])]


def _count_shard(
    found: GivenData,
    inputs: dict[int, Amount],
    root: Dataset,
    shard: Shard,
    here: Sequence[tuple[_GivenSegments, int]],
) -> None:
    """Count what was given of a shard, which each reader has by a number of its own."""
    parts = [reader.of_shard(number) for reader, number in here]
    if not any(len(documents) for documents, *_ in parts):
        return
    lengths = shard.read_lengths()
    zeros = np.zeros(len(lengths), np.int64)
    for (reader, _), part in zip(here, parts, strict=True):
        documents, starts, sizes, _ = part
        if (starts + sizes > lengths[documents]).any():
            raise reader.plan.damaged("a segment reaches outside its document")
        for _, counts in _counted(lengths, part, zeros):
            reader.source.amount.add(counts)
    joined = tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))
    for number, counts in _counted(lengths, joined, root.source_numbers(shard).astype(np.int64)):
        inputs[number].add(counts)
        found.amount.add(counts)
    if found.by is not None:
        values, numbers = _values(shard, found.by)
        for number, counts in _counted(lengths, joined, numbers):
            found.values.setdefault(values[number], Amount()).add(counts)
    given = np.bincount(joined[0], minlength=len(lengths)) > 0
    for reader, number in here:
        own = reader.dataset.shards[number]
        if own.selected is not None:
            reader.source.left_out_given += int((given & ~own.selected).sum())
            own.release()
    shard.release()


def _counted(
    lengths: Int64Array, segments: tuple[Int64Array, ...], keys: Int64Array
) -> Iterator[tuple[int, list[int]]]:
    """Yield each key of documents, and the counts of an `Amount` of those with the key.

    Args:
        lengths: tokens of all documents, shape (num_documents,).
        segments: documents, starts, lengths and times of the given segments.
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


def _kept(dataset: Dataset) -> list[str]:
    return dataset.policies.read.keep


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

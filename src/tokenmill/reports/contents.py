"""The documents of a dataset, its run record, and its parts, for reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tokenmill.core.tables import Fact
from tokenmill.core.values import counted, unknown_facts
from tokenmill.store.canonical import read_sealed, unseal
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.manifest import ADOPTED, RUN_NAME, FileEntry, Manifest, Run
from tokenmill.store.temporary import whole_shard

SUBSET_NOTE = (
    "tokens/ holds both subsets. Plans leave validation out by default; other readers see it. "
    "To skip it there: each file in tokens/ has a table of the same name in documents/. Its "
    "rows are the documents in order, and its column `subset` is 'train' or 'validation'."
)
MOST_PARENTS = 20
"""Datasets of a view to show."""


def iter_documents(dataset: Dataset, numbers: range) -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield (source, position, ids) of consecutive documents."""
    first = 0
    for shard in dataset.shards:
        count = shard.entry.documents
        start, stop = max(numbers.start - first, 0), min(numbers.stop - first, count)
        first += count
        if start >= stop:
            continue
        with whole_shard(dataset, shard):
            table = shard.documents(["source", "position"]).slice(start, stop - start)
            sources = table.column("source").combine_chunks().dictionary_decode().to_pylist()
            positions = table.column("position").to_pylist()
            for index, (source, position) in enumerate(zip(sources, positions, strict=True), start):
                yield source, position, shard.document(index)


class ViewFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the documents of a view come from."""

    question: list[str]
    parents: list[tuple[str, int]]
    """Datasets: their folders, and how many documents each has, in the view or not."""

    def lines(self) -> Iterator[Fact]:
        """Names and values to show."""
        yield "chosen", "; ".join(self.question)
        for location, documents in self.parents[:MOST_PARENTS]:
            yield "from", f"{location} ({counted(documents, 'document')})"
        if len(self.parents) > MOST_PARENTS:
            yield "", f"and {counted(len(self.parents) - MOST_PARENTS, 'more dataset')}"


def view_facts(dataset: Dataset) -> ViewFacts | None:
    """Where the documents of a view come from; None if this is no view."""
    if not dataset.is_view:
        return None
    parents = [(root.location, root.num_documents) for root in dataset.roots]
    return ViewFacts(question=dataset.question, parents=parents)


def dataset_facts(
    manifest: Manifest, location: str, view: ViewFacts | None = None
) -> Iterator[Fact]:
    """What to know first of a dataset, from its manifest; or of a view."""
    totals, tokenizer = manifest.totals, manifest.tokenizer
    rejected = ", ".join(f"{reason} {n:,}" for reason, n in totals.rejected.items()) or "none"
    identity = f"id {manifest.dataset_id}"
    identity += "" if view else f", format {manifest.format_version}"
    mean = totals.tokens / max(totals.documents, 1)
    begins = f"begins with {tokenizer.prefix_ids or 'nothing'}, ends with {tokenizer.eos_id}"
    yield "view" if view else "dataset", f"{location} ({identity})"
    yield from view.lines() if view else ()
    yield "documents", f"{totals.documents:,} in {counted(len(manifest.shards), 'shard')}"
    yield "tokens", f"{totals.tokens:,} as {manifest.token_dtype}, {mean:,.0f} per document"
    if view is None:
        yield "records", f"{totals.records:,}: {totals.empty:,} empty, rejected: {rejected}"
    yield from unknown_facts(totals.unknown_tokens, totals.tokens)
    yield "tokenizer", f"{tokenizer.kind}, largest id {tokenizer.largest_id}, {begins}"


def described(
    dataset: Dataset, run: Run | None, subsets: dict[str, SubsetCounts]
) -> Iterator[Fact]:
    """Everything about a dataset that fits in a few lines."""
    view = view_facts(dataset)
    yield from dataset_facts(dataset.manifest, dataset.location, view)
    if dataset.manifest.tokenizer.fingerprint:
        yield "fingerprint", dataset.manifest.tokenizer.fingerprint
    if run is not None:
        yield "from", str(run.recipe.get("tokenizer"))
        adopted = run.engine == ADOPTED
        yield "encoded by", "another tool" if adopted else f"the engine {run.engine}"
        yield "exactness", exactness_text(run)
    yield from (fact for fact in subset_facts(subsets) if view is None or fact[0] != "note")


def subset_facts(subsets: dict[str, SubsetCounts]) -> list[Fact]:
    """Names and values of the lines; empty if the dataset has no validation subset."""
    if not subsets:
        return []
    facts = [
        (name, f"{counted(counts.documents, 'document')}, {counted(counts.tokens, 'token')}")
        for name, counts in subsets.items()
    ]
    return [*facts, ("note", SUBSET_NOTE)]


def exactness_text(run: Run) -> str:
    """How the ids of a dataset were checked."""
    if run.engine == ADOPTED:
        return "adopted: all ids are in the vocabulary; they were compared with no text"
    if run.engine == "reference":
        return "the tokenizer's own library encoded every document"
    return audited_text(run, "the reference tokenizer")


def audited_text(run: Run, reference: str) -> str:
    """How many documents were compared with the reference, and what that may have missed."""
    audited = counted(run.audited_documents, "document")
    if run.audit is msgspec.UNSET:
        return f"{audited} compared with {reference}: all equal; others may differ"
    if not (rate := run.audit.excluded_error_rate):
        return f"every document compared with {reference}: all equal"
    missed = f"with 95 % confidence, fewer than {100 * rate:.2g} % of all documents differ"
    return f"{audited} compared with {reference}: all equal; {missed}"


def stored_run(dataset: Dataset) -> Run:
    """The run record of a local dataset: how it was built."""
    return read_sealed(dataset.folder / RUN_NAME, Run)


def run_if_kept(dataset: Dataset) -> Run | None:
    """The run record of a local or remote dataset; None if it is missing."""
    if dataset.origin is None:
        return stored_run(dataset) if (dataset.folder / RUN_NAME).is_file() else None
    location = dataset.origin.location
    from tokenmill.store.cloud.client import Client  # imports HTTP clients

    data = Client(location).get(RUN_NAME)
    return None if data is None else unseal(data, Run, f"{location}/{RUN_NAME}")


class SubsetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The documents and tokens of one subset."""

    documents: int
    tokens: int


def count_subsets(dataset: Dataset) -> dict[str, SubsetCounts]:
    """Documents and tokens of `train` and `validation`; empty without a validation subset.

    The manifest has no such counts: they come from the documents tables and the token indexes.

    Raises:
        VerificationError: a documents table or a token index is damaged.
    """
    if not dataset.policies.read.validation:
        return {}
    documents = tokens = 0
    dataset.announce_pass()
    for shard in dataset.shards:
        held_out = _in_validation(shard)
        if shard.selected is not None:
            held_out &= shard.selected
        documents += int(held_out.sum())
        tokens += int(shard.read_lengths()[held_out].sum())
        shard.release()
    rest = SubsetCounts(
        documents=dataset.num_documents - documents, tokens=dataset.num_tokens - tokens
    )
    return {"train": rest, "validation": SubsetCounts(documents=documents, tokens=tokens)}


def _in_validation(shard: Shard) -> np.ndarray:
    """Which documents are in the validation subset, shape (num_documents,)."""
    import pyarrow.compute as pc

    subsets = shard.documents(["subset"]).column("subset")
    return pc.equal(subsets, "validation").to_numpy().astype(np.bool_)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a dataset: some shards, other files, sources and plans."""

    dataset: Dataset
    index: int
    count: int

    @property
    def is_first(self) -> bool:
        """Whether this part checks what exists only once."""
        return self.index == 0

    @property
    def shards(self) -> slice:
        """Consecutive shards of the dataset."""
        return self._share([entry.tokens for entry in self.dataset.manifest.shards])

    @property
    def files(self) -> list[FileEntry]:
        """Files that belong to no shard. Every part checks the tokenizer's: it uses them."""
        manifest = self.dataset.manifest
        rejected = self._share([file.bytes for file in manifest.rejected])
        return [*manifest.tokenizer.files, *manifest.rejected[rejected]]

    @property
    def documents(self) -> range:
        """The documents in the shards of this part."""
        return _range([entry.documents for entry in self.dataset.manifest.shards], self.shards)

    @property
    def sources(self) -> slice:
        """Consecutive sources of the dataset."""
        return self._share([source.bytes for source in self.dataset.manifest.sources])

    @property
    def documents_of_sources(self) -> range:
        """The documents from the sources of this part, according to the manifest."""
        counts = [source.counts.documents for source in self.dataset.manifest.sources]
        return _range(counts, self.sources)

    def plans(self, names: Sequence[str]) -> list[str]:
        """The plans that this part checks."""
        return list(names[self.index :: self.count])

    def _share(self, sizes: Sequence[int]) -> slice:
        return share(sizes, self.index, self.count)


def _range(counts: Sequence[int], part: slice) -> range:
    start = sum(counts[: part.start])
    return range(start, start + sum(counts[part]))


def share(sizes: Sequence[int], index: int, count: int) -> slice:
    """The consecutive items that belong to a part: those with their middle inside it.

    Every item is in one part, and the parts are about equally large.
    """
    ends = np.cumsum(sizes, dtype=np.float64)
    middles = ends - np.asarray(sizes, np.float64) / 2
    total = float(ends[-1]) if len(ends) else 0.0
    edges = [total * edge / count for edge in (index, index + 1)]
    start, stop = np.searchsorted(middles, edges).tolist()
    return slice(start if index else 0, stop if index + 1 < count else len(sizes))

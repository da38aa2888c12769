"""Which documents an export writes, by subset, and in which order.

Every document of the dataset has one place in the order, and those of other subsets are skipped.
So the order takes no memory, and the subsets take one bit a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tokenmill.core.records import Advance, BoolArray, Int64Array, UInt8Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.kernels.permutation import Permutation
from tokenmill.load.rows.token_source import Located, TokenSource
from tokenmill.store.dataset import Dataset, Shard
from tokenmill.store.exports import DocumentFile, DocumentOptions

PLACES_AT_ONCE = 1 << 18
MOST_DOCUMENTS = 1 << 30
"""Documents of a file: Megatron numbers them with 31 bits, and the last file may have more."""


Documents = tuple[Located, npt.NDArray[np.integer]]
"""Some documents, and their tokens, one document after another."""
_NO_TOKENS: npt.NDArray[np.integer] = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive places, which become one file."""

    described: DocumentFile
    first: int
    stop: int
    shard: int | None = None
    """The only shard that it takes documents from, if the order stays inside shards."""


class Selection:
    """The documents of a dataset or a view, by subset."""

    def __init__(self, dataset: Dataset, options: DocumentOptions, advance: Advance) -> None:
        self.dataset, self.options = dataset, options
        self.reader = TokenSource(dataset)
        self._advance = advance
        counts = [-(-shard.entry.documents // 8) for shard in dataset.shards]
        self._first_bytes = offsets_from_lengths(counts)
        self._bits: dict[str, UInt8Array] = {}
        """One bit a document, the bits of each shard from a byte on; {} if all are for training."""
        if dataset.is_view or dataset.policies.read.validation:
            self._bits = self._choose()

    def _choose(self) -> dict[str, UInt8Array]:
        bits = {name: np.zeros(self._first_bytes[-1], np.uint8) for name in ("train", "validation")}
        shards = self.dataset.shards
        for number, shard in enumerate(shards):
            self._advance("choosing", number, len(shards))
            if not shard.num_documents:
                continue
            chosen = np.zeros(shard.entry.documents, np.bool_)
            chosen[shard.chosen] = True
            held_out = _held_out(shard)
            place = slice(*self._first_bytes[number : number + 2])
            bits["train"][place] = np.packbits(chosen & ~held_out)
            bits["validation"][place] = np.packbits(chosen & held_out)
            shard.release()
        return bits

    @property
    def subsets(self) -> list[str]:
        """The subsets that have documents."""
        return [name for name, bits in self._bits.items() if bits.any()] or ["train"]

    def stretches(self, subset: str, names: str, least_tokens: int | None = None) -> list[Stretch]:
        """Cut the documents of a subset into files of at least `least_tokens`; None: into one file.

        A smaller file is the only one of its subset. `names` is formatted with the number of a
        file.
        """
        last = len(self.dataset.document_numbers)
        least, most = least_tokens or 1 << 62, MOST_DOCUMENTS if least_tokens else 1 << 62
        cuts: list[tuple[int, int, int]] = []
        """The stop of each file, and its documents and tokens."""
        documents = tokens = 0
        for places, located in self._located(subset, 0, last):
            stops, first = np.cumsum(located.lengths), 0
            self._advance("planning", int(places[0]), last)
            while first < len(stops):
                before = int(stops[first - 1]) if first else 0
                enough = int(np.searchsorted(stops, before + least - tokens)) + 1
                stop = min(enough, first + most - documents, len(stops))
                documents += stop - first
                tokens += int(stops[stop - 1]) - before
                if tokens >= least or documents == most:
                    cuts.append((int(places[stop - 1]) + 1, documents, tokens))
                    documents = tokens = 0
                first = stop
        if documents:
            if cuts and tokens < least:
                _, more_documents, more_tokens = cuts.pop()
                documents, tokens = documents + more_documents, tokens + more_tokens
            cuts.append((last, documents, tokens))
        made: list[Stretch] = []
        for number, (stop, documents, tokens) in enumerate(cuts):
            name, start = names.format(number), made[-1].stop if made else 0
            made.append(Stretch(_described(name, subset, documents, tokens), start, stop))
        return made

    def by_shard(self, subset: str, names: str) -> list[Stretch]:
        """The documents of a subset in each shard that has some; files get its number."""
        made = []
        for number in range(len(self.dataset.shards)):
            first, stop = self.reader.first_documents[number : number + 2].tolist()
            lengths = [each.lengths for _, each in self._located(subset, first, stop, number)]
            if documents := sum(map(len, lengths)):
                tokens = sum(int(each.sum()) for each in lengths)
                described = _described(names.format(number), subset, documents, tokens)
                made.append(Stretch(described, first, stop, number))
        return made

    def read(self, stretch: Stretch, with_tokens: bool) -> Iterator[Documents]:
        """Yield the documents of a file in order, some at a time."""
        subset = stretch.described.subset
        for _, located in self._located(subset, stretch.first, stretch.stop, stretch.shard):
            for some in located.batches() if with_tokens else [located]:
                yield some, self.reader.read(some) if with_tokens else _NO_TOKENS

    def _located(
        self, subset: str, first: int, stop: int, shard: int | None = None
    ) -> Iterator[tuple[Int64Array, Located]]:
        """Yield the documents of a subset in order, and their places, both of shape (n,)."""
        for start in range(first, stop, PLACES_AT_ONCE):
            places = np.arange(start, min(start + PLACES_AT_ONCE, stop))
            documents = self._ordered(places, first, stop, shard)
            if self._bits:
                kept = self._is_in(subset, documents)
                places, documents = places[kept], documents[kept]
            if len(documents):
                yield places, self.reader.locate(documents)

    def _ordered(self, places: Int64Array, first: int, stop: int, shard: int | None) -> Int64Array:
        """Return the document at each place, shape (n,)."""
        seed = self.options.seed
        if self.options.order == "corpus":
            return places
        if shard is None:
            return Permutation(len(self.dataset.document_numbers), seed)(places)
        return first + Permutation(stop - first, seed, shard)(places - first)

    def _is_in(self, subset: str, documents: Int64Array) -> BoolArray:
        shards = self.reader.shards_of(documents)
        local = documents - self.reader.first_documents[shards]
        found = self._bits[subset][self._first_bytes[shards] + (local >> 3)]
        return (found >> (7 - (local & 7)).astype(np.uint8) & 1).astype(np.bool_)


def _held_out(shard: Shard) -> BoolArray:
    """Whether each document is in the validation subset, shape (num_documents,)."""
    column = shard.documents(["subset"]).column("subset").combine_chunks()
    is_validation = np.array([name == "validation" for name in column.dictionary.to_pylist()])
    found: BoolArray = is_validation[column.indices.to_numpy(zero_copy_only=False)]
    return found


def _described(name: str, subset: str, documents: int, tokens: int) -> DocumentFile:
    return DocumentFile(name=name, subset=subset, documents=documents, tokens=tokens)

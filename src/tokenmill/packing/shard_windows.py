"""Group consecutive shards into windows, which are packed together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tokenmill.core.records import BoolArray, Int32Array
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.packing.document_choice import DocumentChoice
from tokenmill.packing.figures import Ledger
from tokenmill.packing.long_documents import Boundaries, Places, check_window_size
from tokenmill.packing.rest import Rest
from tokenmill.packing.window import Window
from tokenmill.store.dataset import Shard

MOST_DOCUMENTS = 1 << 22
"""A local window ends after this many documents, even if few of them are chosen."""


@dataclass(frozen=True, slots=True)
class Part:
    """A shard of the current window: its documents, or the ranges that are left of them."""

    shard: Shard
    first_document: int
    lengths: Int32Array
    chosen: Int32Array
    kinds: Int32Array | None
    sources: Int32Array
    places: Places | None


def windows_of(choice: DocumentChoice, ledger: Ledger, rest: Rest | None) -> Iterator[list[Part]]:
    """Group consecutive shards into windows with enough sequences; a rest joins the last."""
    dataset, options = choice.dataset, choice.options
    enough = options.window_sequences * options.length
    first_document, tokens = 0, 0
    complete: list[Part] = []
    current: list[Part] = []
    dataset.announce_pass()
    for number, shard in enumerate(dataset.shards):
        part = _part_of(choice, number, first_document, ledger, rest)
        current.append(part)
        tokens += int(part.lengths[part.chosen].sum(dtype=np.int64))
        first_document += shard.entry.documents
        num_documents = sum(each.shard.entry.documents for each in current)
        full = tokens >= enough or num_documents >= MOST_DOCUMENTS
        if options.window == "local" and full:
            if complete:
                yield complete
            complete, current, tokens = current, [], 0
    if complete or current:
        yield complete + current


def _part_of(
    choice: DocumentChoice, number: int, first_document: int, ledger: Ledger, rest: Rest | None
) -> Part:
    """Choose what is packed of a shard, and count what is left out."""
    shard = choice.dataset.shards[number]
    chosen = choice.choose(shard, first_document)
    lengths = shard.read_lengths()
    kinds, sources, places = chosen.kinds, chosen.sources, None
    documents = chosen.documents
    if rest is None:
        for reason, left_out in chosen.left_out.items():
            ledger.left_out.lose(reason, lengths[left_out])
        packed = lengths.astype(np.int32)
    else:
        left = rest.left_of(number, shard, lengths)
        left.enter(chosen, ledger.left_out)
        packed, places = left.ranges(chosen, choice.options)
        documents = np.arange(len(packed), dtype=np.int32)
        kinds = None if kinds is None else kinds[places.documents]
        sources = sources[places.documents]
    return Part(shard, first_document, packed, documents, kinds, sources, places)


def window_of(parts: list[Part], tables: tuple[BoolArray, BoolArray, BoolArray] | None) -> Window:
    """Return the documents of shards, or the ranges that are left of them, as one window."""
    counts = [len(part.lengths) for part in parts]
    check_window_size(max(sum(counts), sum(len(part.chosen) for part in parts)))
    firsts = offsets_from_lengths(counts)
    chosen = [part.chosen + first for part, first in zip(parts, firsts, strict=False)]
    kinds = [part.kinds for part in parts if part.kinds is not None]

    def ids_of(index: int) -> np.ndarray:
        number = int(np.searchsorted(firsts, index, side="right")) - 1
        part, local = parts[number], index - int(firsts[number])
        if part.places is None:
            start, length = part.shard.place(local)
        else:
            start, _ = part.shard.place(int(part.places.documents[local]))
            start, length = start + int(part.places.starts[local]), int(part.lengths[local])
        return part.shard.ids[start : start + length]

    return Window(
        lengths=np.concatenate([part.lengths for part in parts]),
        chosen=np.concatenate(chosen).astype(np.int32),
        kinds=np.concatenate(kinds) if kinds else None,
        sources=np.concatenate([part.sources for part in parts]),
        boundaries=None if tables is None else Boundaries(ids_of, *tables),
        places=_joined_places(parts),
    )


def _joined_places(parts: list[Part]) -> Places | None:
    """Return the places of the ranges of a window, or None if documents are packed whole."""
    found = [part.places for part in parts if part.places is not None]
    if not found:
        return None
    firsts = offsets_from_lengths([part.shard.entry.documents for part in parts])
    documents = [each.documents + first for each, first in zip(found, firsts, strict=False)]
    return Places(
        np.concatenate(documents).astype(np.int32),
        np.concatenate([each.starts for each in found]),
        np.concatenate([each.ends for each in found]),
        sum(each.num_documents for each in found),
    )

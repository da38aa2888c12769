"""Changed plans, pieces and windows in a line, sequences as lists, counts of published tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tokenmill.core.records import Int32Array, Segments, Sequences
from tokenmill.packing.figures import Figures, Ledger
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import STRATEGIES
from tokenmill.packing.strategy import Pieces
from tokenmill.packing.window import PackedWindow, Window, pack_window
from tokenmill.store.canonical import read_sealed, write_sealed
from tokenmill.store.digests import file_digest
from tokenmill.store.manifest import FileEntry
from tokenmill.store.plan import PLAN_NAME, PlanManifest

NAMES = tuple(name for name in STRATEGIES if name != "optimal")
"""All but `optimal`, which searches for long and has tests of its own."""
CUTTING = tuple(name for name in NAMES if STRATEGIES[name].cuts_documents)
KEEPING_ORDER = ("next-fit", "concat-and-chunk", "order-preserving")


def pieces(sizes: list[int]) -> Pieces:
    """Piece i is the whole of document i."""
    lengths = np.array(sizes, np.int32)
    documents = np.arange(len(sizes), dtype=np.int32)
    return Pieces(Segments(documents, np.zeros_like(documents), lengths), lengths)


def shown(sequences: Sequences) -> list[list[tuple[int, int, int]]]:
    """(document, start, length) of the segments of each sequence."""
    segments = sequences.segments
    rows = list(
        zip(
            segments.documents.tolist(),
            segments.starts.tolist(),
            segments.lengths.tolist(),
            strict=True,
        )
    )
    edges = sequences.offsets.tolist()
    assert edges[0] == 0
    assert edges[-1] == len(rows)
    return [rows[edges[i] : edges[i + 1]] for i in range(len(edges) - 1)]


def lengths_of(sequences: Sequences) -> list[list[int]]:
    """The segment lengths of each sequence."""
    return [[length for _, _, length in row] for row in shown(sequences)]


def documents_of(sequences: Sequences) -> list[list[int]]:
    """The documents of each sequence."""
    return [[document for document, _, _ in row] for row in shown(sequences)]


def pack_sizes(packing: str, sizes: list[int], length: int, **options: Any) -> Sequences:
    """What a strategy makes of whole documents, none of them cut beforehand."""
    wanted = PackOptions(sequence_length=length, packing=packing, **options)  # type: ignore[arg-type]
    return STRATEGIES[packing].pack(pieces(sizes), wanted)


def window_of(
    lengths: list[int] | Int32Array,
    chosen: list[int] | None = None,
    kinds: list[int] | None = None,
    **more: Any,
) -> Window:
    """A window of documents of these lengths, all chosen unless it is said which."""
    return Window(
        lengths=np.asarray(lengths, np.int32),
        chosen=np.arange(len(lengths), dtype=np.int32)
        if chosen is None
        else np.array(chosen, np.int32),
        kinds=None if kinds is None else np.array(kinds, np.int32),
        **more,
    )


def pack_documents(lengths: list[int] | Int32Array, length: int, **options: Any) -> PackedWindow:
    """One window of whole documents, cut and packed."""
    return pack_window(window_of(lengths), PackOptions(sequence_length=length, **options))


def figures_of(packed: PackedWindow, options: PackOptions) -> Figures:
    """The figures of a plan of one window."""
    ledger = Ledger(options)
    ledger.add(packed)
    return ledger.figures()


def figures_for(lengths: list[int] | Int32Array, length: int, **options: Any) -> Figures:
    """The figures of documents of these lengths, packed in one window."""
    wanted = PackOptions(sequence_length=length, **options)
    return figures_of(pack_window(window_of(lengths), wanted), wanted)


def web_lengths(count: int) -> Int32Array:
    """Log-normal lengths as of web pages: median 493, mean about 904, up to tens of thousands."""
    lengths = np.rint(np.random.default_rng(0).lognormal(6.2, 1.1, count)).clip(1, None)
    return lengths.astype(np.int32)


def seqpacker_lengths(distribution: str) -> Int32Array:
    """The 10,000 draws of the benchmarks of https://pypi.org/project/seqpacker/, seed 42."""
    draw = np.random.default_rng(42)
    if distribution == "uniform":
        lengths = draw.integers(16, 513, 10_000)
    elif distribution == "exponential":
        lengths = draw.exponential(128, 10_000)
    elif distribution == "lognormal":
        mean, deviation = 128, 64
        mu = np.log(mean**2 / np.sqrt(deviation**2 + mean**2))
        sigma = np.sqrt(np.log(1 + deviation**2 / mean**2))
        lengths = draw.lognormal(mu, sigma, 10_000)
    else:
        lengths = np.concatenate([draw.normal(64, 12.8, 7_000), draw.normal(512, 102.4, 3_000)])
        draw.shuffle(lengths)
    return lengths.clip(1, None).astype(np.int32)


def reseal_plan(folder: Path, **changes: Any) -> None:
    """Write plan.json anew, with sizes and digests of the arrays as they are now."""
    manifest = read_sealed(folder / PLAN_NAME, PlanManifest)
    files = [
        FileEntry(name=path.name, bytes=path.stat().st_size, xxh3_128=file_digest(path))
        for path in (folder / file.name for file in manifest.files)
    ]
    write_sealed(folder / PLAN_NAME, msgspec.structs.replace(manifest, files=files, **changes))

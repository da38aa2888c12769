"""Compare all packing strategies on the same documents, and recommend one."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import get_args

import msgspec
import numpy as np

from tokenmill.core.options import Naming
from tokenmill.core.records import Advance
from tokenmill.kernels.interpreted import MOST_STEPS
from tokenmill.packing.figures import Figures, Ledger
from tokenmill.packing.long_documents import Boundaries
from tokenmill.packing.options import Packing, PackOptions
from tokenmill.packing.planning import packed_windows, with_subset
from tokenmill.packing.rest import Rest
from tokenmill.packing.strategies import STRATEGIES, objections
from tokenmill.packing.window import Window, pack_window, row_format
from tokenmill.store.dataset import Dataset


@dataclass(frozen=True, slots=True)
class Compared:
    """The figures of one packing strategy in a comparison."""

    packing: str
    figures: Figures | None
    """None if the strategy cannot meet the options."""
    seconds: float
    objection: str
    bound: int | None = None
    """The fewest sequences without avoidable cuts; the same for all strategies."""
    gap: float | None = None
    """Row tokens beyond those of `bound` sequences, as a share of them."""


def compare(
    dataset: Dataset,
    options: PackOptions,
    advance: Advance = lambda stage, done, total: None,
    name_of: Naming = str,
    without: Collection[str] = (),
    rest: Rest | None = None,
) -> list[Compared]:
    """Plan with each strategy and the same options, and return the figures. Writes nothing.

    `name_of` names options in objections; `without` names strategies to leave out.
    With a `rest`, the strategies plan what a training run has not read yet.
    """
    options = with_subset(dataset, options)
    names = [name for name in get_args(Packing) if name not in without]
    rows = []
    for number, name in enumerate(names, 1):
        stage = f"{name} ({number} of {len(names)})"

        def tell(_: str, done: int, total: int, stage: str = stage) -> None:
            advance(stage, done, total)

        chosen = msgspec.structs.replace(options, packing=name)
        if problems := list(objections(chosen)):
            objection = "; ".join(each.said(name_of) for each in problems)
            objection = objection.removeprefix(f"{name_of('pack.packing')}: {name} ")
            rows.append(Compared(name, None, 0.0, objection))
        else:
            rows.append(_compared(dataset, chosen, tell, rest))
    return _with_gaps(rows, row_format(options, 1).row_lengths[-1])


def recommended(rows: Iterable[Compared]) -> Compared | None:
    """Recommend the strategy with the fewest lost tokens, then avoidable cuts, then rows.

    Of those that are as good but for a thousandth of the rows, it is the first that was compared.
    """
    able = [(row, row.figures) for row in rows if row.figures is not None]
    if not able:
        return None
    harm = min(_harm(figures) for _, figures in able)
    harmless = [(row, figures) for row, figures in able if _harm(figures) == harm]
    least = min(figures.row_tokens for _, figures in harmless)
    return next(row for row, figures in harmless if figures.row_tokens * 1000 <= least * 1001)


def _harm(figures: Figures) -> tuple[int, int]:
    return sum(figures.lost_tokens.values()), max(figures.avoidable_cuts, 0)


def _compared(
    dataset: Dataset, options: PackOptions, advance: Advance, rest: Rest | None
) -> Compared:
    advance("", 0, 1)
    warm_up(options, dataset.num_documents)
    ledger = Ledger(options)
    started = time.perf_counter()
    for _ in packed_windows(dataset, options, ledger, advance, rest):
        pass
    return Compared(options.packing, ledger.figures(), time.perf_counter() - started, "")


def _with_gaps(rows: list[Compared], row_length: int) -> list[Compared]:
    """The rows with the best known bound; a bound that only counts tokens is the last resort."""
    bounds = {
        row.packing: row.figures.lower_bound
        for row in rows
        if row.figures is not None and row.figures.lower_bound is not None
    }
    by_pieces = [bounds[name] for name in bounds if not STRATEGIES[name].cuts_documents]
    bound = max(by_pieces or bounds.values(), default=0)
    if not bound:
        return rows
    return [
        replace(row, bound=bound, gap=row.figures.row_tokens / (bound * row_length) - 1)
        if row.figures is not None
        else row
        for row in rows
    ]


def warm_up(options: PackOptions, num_documents: int) -> None:
    """Load a strategy, and compile it if there are many documents, so that this is not timed."""
    count = 1 if num_documents <= MOST_STEPS else MOST_STEPS + 1
    # Whole rows: order-preserving tries each run of documents that fit into some sequences.
    lengths = np.full(count, options.length, np.int32)
    ids = lambda document: lengths[:1]  # noqa: E731
    table = np.zeros(2, np.bool_)
    documents = np.arange(count, dtype=np.int32)
    boundaries = Boundaries(ids, table, table, table)
    Ledger(options).add(pack_window(Window(lengths, documents, boundaries=boundaries), options))

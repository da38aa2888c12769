"""A new packing strategy is a function, and its name."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

from packing_kit import lengths_of, pack_documents
from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.core.records import Sequences
from tokenmill.packing.options import PackOptions
from tokenmill.packing.strategies import STRATEGIES, objections, options_of_plan
from tokenmill.packing.strategy import Pieces, Strategy, deal
from tokenmill.packing.window import row_format
from tokenmill.run.recipe.checks import make_pack_options


def pack(pieces: Pieces, options: PackOptions) -> Sequences:
    """Every piece alone."""
    return deal(pieces, np.arange(len(pieces), dtype=np.int32))


@pytest.fixture
def add_strategy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Strategy], None]:
    """Adds the strategy "alone"."""

    def add(strategy: Strategy) -> None:
        monkeypatch.setitem(STRATEGIES, "alone", strategy)

    return add


def test_a_strategy_with_one_function_packs(add_strategy: Callable[[Strategy], None]) -> None:
    add_strategy(Strategy(pack))
    packed = pack_documents([3, 9, 2], 8, packing="alone")
    assert lengths_of(packed.sequences) == [[3], [8], [1], [2]]


def test_a_strategy_says_what_its_rows_and_steps_are(
    add_strategy: Callable[[Strategy], None],
) -> None:
    add_strategy(
        Strategy(pack, sequence_lengths=lambda options: [3, 8], group_size=lambda options: 2)
    )
    rows = row_format(PackOptions(sequence_length=8, packing="alone"), 1)  # type: ignore[arg-type]
    assert (rows.row_lengths, rows.group_size) == ([3, 8], 2)
    assert rows.row_lengths_of(np.array([1, 3, 4, 8])).tolist() == [3, 3, 8, 8]


def test_a_strategy_without_the_package_that_it_needs_is_refused(
    add_strategy: Callable[[Strategy], None],
) -> None:
    add_strategy(Strategy(pack, needs="no_such_solver", extra="solver"))
    options = PackOptions(sequence_length=8, packing="alone")  # type: ignore[arg-type]
    assert list(map(str, objections(options))) == [
        f"pack.packing: alone needs the extra solver: {install_command('solver')}"
    ]


def test_optimal_without_its_solver_is_refused_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)  # as if it were not installed
    with pytest.raises(UserError, match="the plan has 1 problem") as caught:
        make_pack_options({"sequence_length": 8, "packing": "optimal"})
    assert caught.value.why == (
        f"pack.packing: optimal needs the extra optimal: {install_command('optimal')}"
    )


def test_options_of_a_plan_by_optimal_are_read_without_its_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    options = {"sequence_length": 8, "packing": "optimal"}
    assert options_of_plan(options, "").packing == "optimal"

"""What a packing strategy is: a module in `strategies/` with a `STRATEGY`.

A new one is such a module, and its name in `options.Packing`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt

from tokenmill.compiled import compiled
from tokenmill.errors import VerificationError
from tokenmill.installed import install_command
from tokenmill.interpreted import for_steps
from tokenmill.pack.options import PackOptions
from tokenmill.records import Int32Array, Int64Array, Segments, Sequences


@dataclass(frozen=True, slots=True)
class Pieces:
    """Segments to pack, and the room that each takes in a sequence."""

    segments: Segments
    sizes: Int32Array
    """Room in tokens, shape (n,): the length with tokens set at cuts, rounded up."""

    def __len__(self) -> int:
        return len(self.sizes)

    @staticmethod
    def whole(documents: npt.ArrayLike, lengths: npt.ArrayLike) -> Pieces:
        """One piece for each document, with all its tokens."""
        sizes = np.asarray(lengths, np.int32)
        numbers = np.asarray(documents)  # a stream may need 64 bits
        return Pieces(Segments(numbers, np.zeros_like(sizes), sizes), sizes)


@dataclass(frozen=True, slots=True)
class Strategy:
    """How pieces become sequences, and what else about a plan depends on that.

    The same pieces give the same sequences on any machine.
    """

    pack: Callable[[Pieces, PackOptions], Sequences]
    """Puts every piece into exactly one sequence of at most `options.length` tokens."""
    cuts_documents: bool = False
    """Takes documents of any length, and cuts them where a sequence is full."""
    problems: Callable[[PackOptions], Iterator[str]] = lambda options: iter(())
    """What it cannot do of what the options ask for."""
    sequence_lengths: Callable[[PackOptions], list[int]] = lambda options: [options.length]
    """Ascending; the last one is `options.length`."""
    group_size: Callable[[PackOptions], int] = lambda options: 1
    """Consecutive sequences that belong into one step."""
    lower_bound: Callable[[Int64Array, PackOptions], int] = lambda piece_sizes, options: 0
    """Sequences that `piece_sizes[s]` pieces of each size s need at least, if it knows better."""
    count_sequences: Callable[[Int64Array, PackOptions], int] | None = None
    """Sequences that it makes of so many pieces of each size, if it can tell without packing."""
    needs: str | None = None
    """A package that is not always installed,"""
    extra: str = ""
    """and the extra of tokenmill that brings it."""


def load_strategy(name: str) -> Strategy:
    """The strategy of a name, e.g. "best-fit"; its module is imported only now."""
    module = importlib.import_module(f"tokenmill.pack.strategies.{name.replace('-', '_')}")
    return cast("Strategy", module.STRATEGY)


def contradictions(options: PackOptions) -> Iterator[str]:
    """What is wrong with options that are given together, once there is a sequence length."""
    if options.sequence_length is None:
        return
    strategy = load_strategy(options.packing)
    yield from options.contradictions()
    if strategy.cuts_documents:
        yield from _cutting_problems(options)
    yield from strategy.problems(options)


def objections(options: PackOptions) -> Iterator[str]:
    """Why no plan can be made here: contradictions, or a package that is not installed."""
    if options.sequence_length is None:
        return
    yield from contradictions(options)
    strategy = load_strategy(options.packing)
    if strategy.needs is not None and importlib.util.find_spec(strategy.needs) is None:
        install = install_command(strategy.extra)
        yield f"pack.packing: {options.packing} needs {strategy.needs}: {install}"


def _cutting_problems(options: PackOptions) -> Iterator[str]:
    name = options.packing
    if options.at_cuts != "nothing":
        yield f"pack.at_cuts: {name} cuts documents anywhere and sets no tokens there"
    if options.long_documents not in ("split", "keep-start", "keep-end", "drop"):
        yield f"pack.long_documents: {name} cuts documents where a sequence is full"
    if options.segment_multiple > 1:
        yield f"pack.segment_multiple: {name} cannot pad single segments"


def stored_options(options: PackOptions) -> dict[str, Any]:
    """The options as a plan carries them, with which it is identified."""
    values: dict[str, Any] = msgspec.to_builtins(options)
    if not options.reserve:  # younger than the first plans, which keep their ids
        del values["reserve"]
    return values


def options_of_plan(values: dict[str, Any], where: str) -> PackOptions:
    """The options that a stored plan carries.

    Raises:
        VerificationError: they are not those of a plan.
    """
    try:
        options = msgspec.convert(values, PackOptions)
    except msgspec.ValidationError as error:
        why = f"options: {error}"
    else:
        problems = list(contradictions(options))
        if options.sequence_length is not None and not problems:
            return options
        why = "; ".join(problems) or "options: no sequence length"
    hint = "make the plan again: tokenmill pack --overwrite"
    raise VerificationError("a plan is damaged", where=where, why=why, hint=hint)


def deal(pieces: Pieces, sequence_of: Int32Array, *, renumber: bool = True) -> Sequences:
    """Gather pieces by the sequence each was assigned to, shape (n,), numbers from 0 without gaps.

    Inside a sequence pieces keep their order. Sequences are renumbered by their first piece, so
    that a plan follows its corpus instead of the patterns in which a strategy fills sequences.
    """
    if renumber:
        sequence_of = for_steps(_numbered_by_first, len(pieces))(sequence_of)
    segments = pieces.segments
    gather = for_steps(_gathered, len(pieces))
    offsets, documents, starts, lengths = gather(
        sequence_of, segments.documents, segments.starts, segments.lengths
    )
    return Sequences(Segments(documents, starts, lengths), offsets)


@compiled
def _numbered_by_first(sequence_of: Int32Array) -> Int32Array:
    numbers = np.full(len(sequence_of), -1, np.int32)
    result = np.empty(len(sequence_of), np.int32)
    found = np.int32(0)
    for i in range(len(sequence_of)):
        if numbers[sequence_of[i]] < 0:
            numbers[sequence_of[i]] = found
            found += 1
        result[i] = numbers[sequence_of[i]]
    return result


@compiled
def _gathered(
    sequence_of: Int32Array, documents: Int32Array, starts: Int32Array, lengths: Int32Array
) -> tuple[Int64Array, Int32Array, Int32Array, Int32Array]:
    """Offsets of the sequences, and the segments of each together."""
    num_sequences = 0
    for i in range(len(sequence_of)):
        num_sequences = max(num_sequences, sequence_of[i] + 1)
    offsets = np.zeros(num_sequences + 1, np.int64)
    for i in range(len(sequence_of)):
        offsets[sequence_of[i] + 1] += 1
    for i in range(num_sequences):
        offsets[i + 1] += offsets[i]
    places = offsets[:-1].copy()
    gathered = (np.empty_like(documents), np.empty_like(starts), np.empty_like(lengths))
    for i in range(len(sequence_of)):
        place = places[sequence_of[i]]
        places[sequence_of[i]] += 1
        gathered[0][place] = documents[i]
        gathered[1][place] = starts[i]
        gathered[2][place] = lengths[i]
    return offsets, gathered[0], gathered[1], gathered[2]

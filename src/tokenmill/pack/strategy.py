"""The interface of packing strategies.

To add a strategy, add a module with a `STRATEGY` to `strategies/`, and its name to
`options.Packing`.
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

from tokenmill.core.errors import VerificationError
from tokenmill.core.installed import install_command
from tokenmill.core.records import Int32Array, Int64Array, Segments, Sequences
from tokenmill.kernels.compiled import compiled
from tokenmill.kernels.interpreted import for_steps
from tokenmill.pack.options import PackOptions


@dataclass(frozen=True, slots=True)
class Pieces:
    """Segments to pack, and the room that each needs in a sequence."""

    segments: Segments
    sizes: Int32Array
    """Room in tokens, shape (n,): the length with tokens added at cuts, rounded up."""

    def __len__(self) -> int:
        return len(self.sizes)

    @staticmethod
    def whole(documents: npt.ArrayLike, lengths: npt.ArrayLike) -> Pieces:
        """Return one piece per document, with all its tokens."""
        sizes = np.asarray(lengths, np.int32)
        numbers = np.asarray(documents)  # document numbers of a stream may need 64 bits
        return Pieces(Segments(numbers, np.zeros_like(sizes), sizes), sizes)


@dataclass(frozen=True, slots=True)
class Strategy:
    """A packing strategy: how to turn pieces into sequences, and its properties.

    The same pieces must give the same sequences on any machine.
    """

    pack: Callable[[Pieces, PackOptions], Sequences]
    """Puts every piece into exactly one sequence of at most `options.length` tokens."""
    cuts_documents: bool = False
    """Whether it takes documents of any length, and cuts them where a sequence is full."""
    problems: Callable[[PackOptions], Iterator[str]] = lambda options: iter(())
    """Yields what it cannot do with the options."""
    sequence_lengths: Callable[[PackOptions], list[int]] = lambda options: [options.length]
    """Returns the possible sequence lengths, ascending; the last one is `options.length`."""
    group_size: Callable[[PackOptions], int] = lambda options: 1
    """Returns the number of consecutive sequences that belong to the same step."""
    lower_bound: Callable[[Int64Array, PackOptions], int] = lambda piece_sizes, options: 0
    """Returns a lower bound on the sequences for `piece_sizes[s]` pieces of size s, or 0."""
    count_sequences: Callable[[Int64Array, PackOptions], int] | None = None
    """Returns the number of sequences for pieces of each size, if it can without packing."""
    needs: str | None = None
    """An optional package that it needs."""
    extra: str = ""
    """The extra of tokenmill that installs this package."""


def load_strategy(name: str) -> Strategy:
    """Return the strategy with this name, e.g. "best-fit", and import its module."""
    module = importlib.import_module(f"tokenmill.pack.strategies.{name.replace('-', '_')}")
    return cast("Strategy", module.STRATEGY)


def contradictions(options: PackOptions) -> Iterator[str]:
    """Yield what is wrong with the combination of options, which have a sequence length."""
    if options.sequence_length is None:
        return
    strategy = load_strategy(options.packing)
    yield from options.contradictions()
    if strategy.cuts_documents:
        yield from _cutting_problems(options)
    yield from strategy.problems(options)


def objections(options: PackOptions) -> Iterator[str]:
    """Yield why no plan can be made: contradictions, or a package that is not installed."""
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
        yield f"pack.at_cuts: {name} cuts documents anywhere and adds no tokens there"
    if options.long_documents not in ("split", "keep-start", "keep-end", "drop"):
        yield f"pack.long_documents: {name} cuts documents where a sequence is full"
    if options.segment_multiple > 1:
        yield f"pack.segment_multiple: {name} cannot pad segments"


def stored_options(options: PackOptions) -> dict[str, Any]:
    """Return the options as stored in a plan. The plan's id depends on them."""
    values: dict[str, Any] = msgspec.to_builtins(options)
    if not options.reserve:  # a newer option: plans without it keep their ids
        del values["reserve"]
    return values


def options_of_plan(values: dict[str, Any], where: str) -> PackOptions:
    """Return the options of a stored plan.

    Raises:
        VerificationError: they are not valid options of a plan.
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
    """Gather pieces by their sequence. `sequence_of`, shape (n,), has numbers from 0 without gaps.

    Pieces keep their order inside a sequence. Sequences are renumbered by their first piece, so
    that the plan follows the corpus instead of the order in which a strategy fills sequences.
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
    """Return the offsets of sequences, and segments grouped by sequence."""
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

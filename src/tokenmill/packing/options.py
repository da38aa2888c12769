"""The options of packing. Flags, recipe keys and keyword arguments are built from these fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tokenmill.core.options import Problem, Ref, about, options_of

LOGGER = logging.getLogger(__name__)
MIN_SEQUENCE_LENGTH = 2
REASON = "one token leaves none to predict"
TOO_SHORT = f"must be {MIN_SEQUENCE_LENGTH} or more, because {REASON}"
USUAL_SEQUENCE_LENGTH = 16
"""Shorter sequences are most likely a mistake."""
MAX_SEQUENCE_LENGTH = 1 << 24
MAX_WEIGHT = 1000

NonNegative = Annotated[int, Meta(ge=0, le=MAX_SEQUENCE_LENGTH)]
Positive = Annotated[int, Meta(ge=1, le=MAX_SEQUENCE_LENGTH)]
Share = Annotated[float, Meta(ge=0, le=1)]

Packing = Literal[
    "best-fit",
    "first-fit",
    "next-fit",
    "order-preserving",
    "concat-and-chunk",
    "shortest-pack-first",
    "longest-pack-first",
    "optimal",
    "length-buckets",
    "balanced",
    "streaming",
]
LongDocuments = Literal[
    "split",
    "split-at-boundary",
    "sliding-window",
    "keep-start",
    "keep-end",
    "keep-both-ends",
    "drop",
]


def _only(choice: str, owner: str, description: str) -> Meta:
    """Return the description of an option that only applies if `choice` is set to `owner`."""
    return about(f"{owner}: {description}", only=(choice, owner))


class PackOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How documents become training sequences (see also tokenmill pack)."""

    sequence_length: Annotated[
        Annotated[int, Meta(ge=MIN_SEQUENCE_LENGTH, le=MAX_SEQUENCE_LENGTH)] | None,
        about("plan training sequences of this many tokens", "4096", unit="tokens", reason=REASON),
    ] = None
    packing: Annotated[Packing, about("packing strategy")] = "best-fit"
    long_documents: Annotated[
        LongDocuments,
        about(
            "what to do with a document longer than a sequence: split it (anywhere, at "
            "a boundary, or into overlapping windows), keep a part of it, or drop it"
        ),
    ] = "split"
    start_share: Annotated[
        Share,
        _only("long_documents", "keep-both-ends", "share of the sequence kept from the start"),
    ] = 0.5
    overlap: Annotated[
        NonNegative,
        _only(
            "long_documents", "sliding-window", "tokens that each window repeats of the previous"
        ),
    ] = 0
    overlap_in_loss: Annotated[
        bool, _only("long_documents", "sliding-window", "count repeated tokens in the loss again")
    ] = False
    split_at: Annotated[
        Literal["sentence", "line", "paragraph"],
        _only("long_documents", "split-at-boundary", "kind of boundary to split at"),
    ] = "sentence"
    slack: Annotated[
        Positive | None,
        _only(
            "long_documents",
            "split-at-boundary",
            "tokens searched before a cut (default: an eighth of the sequence length)",
        ),
    ] = None
    at_cuts: Annotated[
        Literal["nothing", "bos", "eos", "bos-and-eos"],
        about(
            "tokens to add where a document is cut: eos after the first part, bos before the next"
        ),
    ] = "nothing"
    max_segments: Annotated[
        Positive | None, about("maximum segments per sequence; bounds cu_seqlens, too")
    ] = None
    segment_multiple: Annotated[
        Positive, about("pad segments to a multiple of this, e.g. 2 x context-parallel")
    ] = 1
    sequence_multiple: Annotated[
        Positive, about("pad rows to a multiple of this, e.g. 128 for tensor tiles")
    ] = 1
    reserve: Annotated[
        NonNegative,
        about("free positions to keep for each segment; fill-in-the-middle needs 4"),
    ] = 0
    smallest_bucket: Annotated[
        Positive, _only("packing", "length-buckets", "shortest sequence length, a power of two")
    ] = 256
    cut_cost: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_SEQUENCE_LENGTH)] | None,
        _only(
            "packing",
            "order-preserving",
            "padding tokens to accept to avoid a cut (default: a quarter of the sequence length)",
        ),
    ] = None
    open_sequences: Annotated[
        Annotated[int, Meta(ge=1, le=1 << 20)],
        _only("packing", "streaming", "number of sequences to keep open"),
    ] = 1024
    ranks: Annotated[
        Positive,
        about("balanced: data-parallel ranks to balance attention costs over"),
    ] = 8
    window: Annotated[
        Literal["local", "global"],
        about("pack consecutive shards together, or all shards at once"),
    ] = "local"
    window_sequences: Annotated[
        Positive, _only("window", "local", "smallest number of sequences in a window")
    ] = 10_000
    subset: Annotated[
        str | None,
        about("pack this subset, or all (default: train if there are subsets)"),
    ] = None
    separate_by: Annotated[
        str | None,
        about("documents with different values in this column share no sequence"),
    ] = None
    weight_by: Annotated[str | None, about("column of the documents table for --weight")] = None
    weight: Annotated[
        list[str],
        about(
            "repeat documents with this value of the column, e.g. code=2.5", metavar="VALUE=WEIGHT"
        ),
    ] = []

    @property
    def length(self) -> int:
        """The sequence length, which must be set."""
        if self.sequence_length is None:
            raise ValueError("no sequence length")
        return self.sequence_length

    @property
    def room(self) -> int:
        """Most tokens of a segment, including those added at cuts."""
        return self.length - self.reserve

    @property
    def segment_limit(self) -> int:
        """Most segments of a sequence, at most one per token."""
        return min(self.max_segments or self.length, self.length)

    @property
    def weights(self) -> dict[str, float]:
        """How often documents of each value appear."""
        return dict(filter(None, map(_weight, self.weight)))

    @property
    def slack_tokens(self) -> int:
        """Tokens to search for a boundary before a cut."""
        return self.slack or max(self.length // 8, 1)

    def stored(self) -> dict[str, Any]:
        """Return the options as stored in a plan. The plan's id depends on them."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        if not self.reserve:  # a newer option: plans without it keep their ids
            del values["reserve"]
        return values

    def misplaced(self, *, to_compare: bool = False) -> Iterator[Problem]:
        """Yield the options that belong to a strategy, policy or window that is not chosen.

        With `to_compare`, options of any strategy are fine, because all strategies run.
        """
        chosen = {name: getattr(self, name) for name in ("packing", "long_documents", "window")}
        if to_compare:
            del chosen["packing"]
        for option in options_of(type(self)).values():
            choice, owner = option.extra.get("only", ("", ""))
            if chosen.get(choice, owner) != owner and getattr(self, option.name) != option.default:
                needed = f"needs {{}} {owner}; it is {chosen[choice]}"
                yield Problem(f"pack.{option.name}", needed, Ref(f"pack.{choice}"))

    def contradictions(self) -> Iterator[Problem]:
        """Yield what is wrong with the combination of options, for any strategy."""
        yield from self._room_problems()
        if bool(self.weight) != (self.weight_by is not None):
            yield Problem("pack.weight", "must be given together with {}", Ref("pack.weight_by"))
        if len(self.weights) < len([each for each in self.weight if _weight(each)]):
            yield Problem("pack.weight", "a value has two weights")
        for assignment in self.weight:
            if _weight(assignment) is None:
                rule = f"must be VALUE=WEIGHT, from 0 to {MAX_WEIGHT}"
                yield Problem("pack.weight", "got {!r}; {}", assignment, rule)

    def _room_problems(self) -> Iterator[Problem]:
        if 2 * self.reserve >= self.length:
            rule = f"got {self.reserve}; must be less than half of the sequence length"
            yield Problem("pack.reserve", rule)
            return
        room = self.room - {"nothing": 0, "bos-and-eos": 2}.get(self.at_cuts, 1)
        if room < 1:
            why = "too short for a token between those added at cuts"
            yield Problem("pack.sequence_length", why)
        if self.overlap and self.overlap >= room:
            yield Problem("pack.overlap", f"got {self.overlap}; must be less than {room}")
        if self.long_documents == "keep-both-ends":
            if self.segment_multiple > 1:
                yield Problem("pack.segment_multiple", "cannot be combined with keep-both-ends")
            if self.max_segments == 1:
                yield Problem("pack.max_segments", "keep-both-ends needs at least two")
            if self.reserve:
                yield Problem("pack.reserve", "cannot be combined with keep-both-ends")
            if self.at_cuts != "nothing":
                why = "keep-both-ends keeps a document's own BOS and EOS"
                yield Problem("pack.at_cuts", why)
        if self.length % self.segment_multiple:
            rule = f"must divide the sequence length {self.length}"
            yield Problem("pack.segment_multiple", f"got {self.segment_multiple}; {rule}")


def warn_of_short_sequences(length: int) -> None:
    """Warn if sequences are so short that the unit of the length was probably forgotten."""
    if length < USUAL_SEQUENCE_LENGTH:
        LOGGER.warning("sequences of %d tokens are very short; did you mean %dk?", length, length)


def _weight(assignment: str) -> tuple[str, float] | None:
    value, _, number = assignment.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        return None
    return (value, weight) if value and 0 <= weight <= MAX_WEIGHT else None

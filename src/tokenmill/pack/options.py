"""What a plan is asked for. Flags, recipe keys and keyword arguments are made of these fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from tokenmill.errors import VerificationError

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

CUTTING = ("concat-and-chunk", "order-preserving", "length-buckets")
"""Strategies that cut documents by themselves."""


class PackOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How documents become sequences."""

    sequence_length: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SEQUENCE_LENGTH)] | None,
        Meta(description="tokens of a sequence"),
    ] = None
    packing: Annotated[Packing, Meta(description="the strategy")] = "best-fit"
    long_documents: Annotated[
        LongDocuments,
        Meta(
            description="what becomes of a document longer than a sequence: split into several "
            "segments (anywhere, at a boundary, or as windows that overlap), cut down to what is "
            "kept, or dropped"
        ),
    ] = "split"
    start_share: Annotated[
        Share, Meta(description="keep-both-ends: share of the sequence kept from the start")
    ] = 0.5
    overlap: Annotated[
        NonNegative, Meta(description="sliding-window: tokens that a window repeats of the last")
    ] = 0
    overlap_in_loss: Annotated[
        bool, Meta(description="sliding-window: repeated tokens count in the loss again")
    ] = False
    split_at: Annotated[
        Literal["sentence", "line", "paragraph"],
        Meta(description="split-at-boundary: the boundary looked for"),
    ] = "sentence"
    slack: Annotated[
        Positive | None,
        Meta(
            description="split-at-boundary: tokens searched before a cut "
            "(default: an eighth of the sequence length)"
        ),
    ] = None
    at_cuts: Annotated[
        Literal["nothing", "bos", "eos", "bos-and-eos"],
        Meta(description="tokens set at cuts: bos before what goes on, eos after what is broken"),
    ] = "nothing"
    max_segments: Annotated[
        Positive | None, Meta(description="most segments of a sequence; also bounds cu_seqlens")
    ] = None
    segment_multiple: Annotated[
        Positive, Meta(description="pad every segment to a multiple, e.g. 2 x context-parallel")
    ] = 1
    sequence_multiple: Annotated[
        Positive, Meta(description="pad rows to a multiple, e.g. 128 for tensor tiles")
    ] = 1
    smallest_bucket: Annotated[
        Positive, Meta(description="length-buckets: the shortest sequence, a power of two")
    ] = 256
    cut_cost: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_SEQUENCE_LENGTH)] | None,
        Meta(
            description="order-preserving: padding that one cut is worth "
            "(default: a quarter of the sequence length)"
        ),
    ] = None
    open_sequences: Annotated[
        int, Meta(ge=1, le=1 << 20, description="streaming: sequences that are kept open")
    ] = 1024
    ranks: Annotated[
        Positive,
        Meta(description="data-parallel ranks: balanced evens out attention over them"),
    ] = 8
    window: Annotated[
        Literal["local", "global"],
        Meta(description="pack documents of consecutive shards together, or of all shards"),
    ] = "local"
    window_sequences: Annotated[
        Positive, Meta(description="local: sequences that a window must fill at least")
    ] = 10_000
    subset: Annotated[
        str | None,
        Meta(description="only documents of this subset, or all (default: train, if it exists)"),
    ] = None
    separate_by: Annotated[
        str | None,
        Meta(description="column of the documents table; its values never share a sequence"),
    ] = None
    weight_by: Annotated[
        str | None, Meta(description="column of the documents table that --weight refers to")
    ] = None
    weight: Annotated[
        list[str],
        Meta(description="how often documents of a value appear, e.g. code=2.5"),
    ] = []

    @property
    def length(self) -> int:
        """The sequence length, once it is known to be there."""
        if self.sequence_length is None:
            raise ValueError("no sequence length")
        return self.sequence_length

    @property
    def segment_limit(self) -> int:
        """Most segments of a sequence; there cannot be more than tokens."""
        return min(self.max_segments or self.length, self.length)

    @property
    def weights(self) -> dict[str, float]:
        """How often documents of each value appear."""
        return dict(filter(None, map(_weight, self.weight)))

    @property
    def slack_tokens(self) -> int:
        """Tokens that are searched for a boundary before a cut."""
        return self.slack or max(self.length // 8, 1)

    @property
    def row_length(self) -> int:
        """Tokens of a row of fixed length, padding included."""
        return -(-self.length // self.sequence_multiple) * self.sequence_multiple

    def problems(self) -> Iterator[str]:
        """What is wrong with the options, given together, once there is a sequence length."""
        if self.sequence_length is None:
            return
        yield from self._room_problems()
        if self.packing in CUTTING:
            yield from self._cutting_problems()
        if self.packing == "length-buckets":
            yield from self._bucket_problems()
        if self.packing == "order-preserving" and self.max_segments is not None:
            yield "pack.max_segments: order-preserving has no bound; next-fit keeps order with one"
        if self.packing == "balanced" and self.separate_by is not None:
            yield "pack.separate_by: balanced evens out steps over all kinds"
        if bool(self.weight) != (self.weight_by is not None):
            yield "pack: weight and weight_by belong together"
        if len(self.weights) < len([each for each in self.weight if _weight(each)]):
            yield "pack.weight: a value has two weights"
        for assignment in self.weight:
            if _weight(assignment) is None:
                rule = f"must be VALUE=WEIGHT, from 0 to {MAX_WEIGHT}"
                yield f"pack.weight: got {assignment!r}; {rule}"

    def _room_problems(self) -> Iterator[str]:
        room = self.length - {"nothing": 0, "bos-and-eos": 2}.get(self.at_cuts, 1)
        if room < 1:
            yield "pack.sequence_length: leaves no room beside the tokens set at cuts"
        if self.overlap and self.overlap >= room:
            yield f"pack.overlap: got {self.overlap}; must be less than {room}"
        if self.overlap and self.long_documents != "sliding-window":
            yield "pack.overlap: is for long_documents sliding-window only"
        if self.long_documents == "keep-both-ends":
            if self.segment_multiple > 1:
                yield "pack.segment_multiple: keep-both-ends makes two segments of one text"
            if self.max_segments == 1:
                yield "pack.max_segments: keep-both-ends needs two"
            if self.at_cuts != "nothing":
                yield "pack.at_cuts: a document that keeps both ends has its own BOS and EOS"
        if self.length % self.segment_multiple:
            yield (
                f"pack.segment_multiple: got {self.segment_multiple}; must divide the sequence "
                f"length {self.length}"
            )

    def _cutting_problems(self) -> Iterator[str]:
        if self.at_cuts != "nothing":
            yield f"pack.at_cuts: {self.packing} cuts documents anywhere and sets no tokens there"
        if self.long_documents not in ("split", "keep-start", "keep-end", "drop"):
            yield f"pack.long_documents: {self.packing} cuts documents where a sequence is full"
        if self.segment_multiple > 1:
            yield f"pack.segment_multiple: {self.packing} cannot pad single segments"

    def _bucket_problems(self) -> Iterator[str]:
        smallest = self.smallest_bucket
        if smallest & (smallest - 1) or self.length & (self.length - 1):
            yield "pack: length-buckets needs powers of two: sequence_length, smallest_bucket"
        elif smallest > self.length:
            yield "pack.smallest_bucket: is longer than a sequence"


def _weight(assignment: str) -> tuple[str, float] | None:
    value, _, number = assignment.rpartition("=")
    try:
        weight = float(number)
    except ValueError:
        return None
    return (value, weight) if value and 0 <= weight <= MAX_WEIGHT else None


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
        problems = list(options.problems())
        if options.sequence_length is not None and not problems:
            return options
        why = "; ".join(problems) or "options: no sequence length"
    hint = "make the plan again: tokenmill pack --overwrite"
    raise VerificationError("a plan is damaged", where=where, why=why, hint=hint)

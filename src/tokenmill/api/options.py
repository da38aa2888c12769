"""The keyword arguments of the public functions, for editors and type checkers.

They repeat the fields of the option structs, which check values and hold the defaults.
`tests/test_public_api.py` compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from tokenmill.encode.words.splits import Digits
    from tokenmill.load.columns import MaskedLM
    from tokenmill.load.fill_in_middle import FillInMiddle
    from tokenmill.packing.options import LongDocuments, Packing
    from tokenmill.read.rendering.chat.conversations import Chat
    from tokenmill.store.exports import (
        Column,
        DocumentFormat,
        DocumentOrder,
        Format,
        IdType,
        Layout,
        Order,
    )
    from tokenmill.vocabulary.training.options import Model

Labels = Literal["aligned", "next"]
Ramp = Sequence[Sequence[int]]
"""Points (step, size): each size holds from its step on."""
Transform = Callable[[dict[str, Any]], Any]
"""Takes a record; returns a text, a dict with a text, a list of these, or None."""


class ReadingArguments(TypedDict, total=False):
    """How files are read, and by whom: the fields of LimitOptions and ResourceOptions, and those of
    ReadOptions that matter wherever texts are read.
    """

    format: str | Sequence[str]
    text_field: str | Sequence[str]
    text_template: str | None
    transform: Transform | str | None
    separator: str | None
    max_record: int | str | None
    streaming: bool
    max_documents: int | None
    max_bad: float | str
    on_bad_file: Literal["fail", "quarantine"]
    audit_share: float | str | None
    workers: int | None
    memory: int | str | None
    prefetch: int
    cache_dir: str | Path | None
    scratch: str | None
    metrics: str | Path | None
    patience: float | None


class PackArguments(TypedDict, total=False):
    """The fields of PackOptions."""

    sequence_length: int | None
    packing: Packing
    long_documents: LongDocuments
    start_share: float | str
    overlap: int
    overlap_in_loss: bool
    split_at: Literal["sentence", "line", "paragraph"]
    slack: int | None
    at_cuts: Literal["nothing", "bos", "eos", "bos-and-eos"]
    max_segments: int | None
    segment_multiple: int
    reserve: int
    sequence_multiple: int
    smallest_bucket: int
    cut_cost: int | None
    open_sequences: int
    ranks: int
    window: Literal["local", "global"]
    window_sequences: int
    subset: str | None
    separate_by: str | None
    weight_by: str | None
    weight: Sequence[str]


class SelectArguments(TypedDict, total=False):
    """The fields of SelectOptions."""

    where: str | None
    only: str | Path | None
    without: str | Path | None
    contains: str | Path | None
    without_contained: str | Path | None
    words: int
    dedupe: Literal["exact"] | None
    sample: float | str | None
    seed: int


class ExportArguments(TypedDict, total=False):
    """The fields of ExportOptions."""

    format: Format
    layout: Layout
    columns: Sequence[Column]
    with_labels: bool
    labels: Labels
    sequences_per_file: int
    max_sequences: int | None
    order: Order
    seed: int
    order_by: str | None
    bands: int
    dtype: IdType


class DocumentArguments(TypedDict, total=False):
    """The fields of DocumentOptions."""

    format: DocumentFormat
    order: DocumentOrder
    seed: int
    file_size: int | str
    index_only: bool


class ExportSectionArguments(ExportArguments, total=False):
    """The fields of ExportSection."""

    out: str | Path


class BuildArguments(ReadingArguments, PackArguments, total=False):
    """All options of a recipe except inputs, tokenizer and output."""

    id_field: str | None
    keep: Sequence[str]
    no_loss: str | None
    validation: float | str
    max_tokens: int | None
    chat: Chat | None
    chat_template: str | Path | None
    loss_on: Sequence[str]
    chat_date: str | None
    engine: str
    encoding: str
    pattern: str | None
    specials_from: str | Path | None
    eos: str | int | None
    pad: str | int | None
    special_tokens: Literal["text", "control", "error"]
    unknown: Literal["count", "error"]
    export: ExportSectionArguments


class BatchArguments(TypedDict, total=False):
    """The fields of BatchOptions."""

    columns: Sequence[str]
    positions: Literal["segment", "document", "row"]
    position_scale: float
    loss_weights: Literal["token", "document", "square-root"]
    masked_lm: MaskedLM | None
    fill_in_middle: FillInMiddle | None


class RowArguments(BatchArguments, total=False):
    """The fields of BatchOptions and Targets."""

    labels: Labels
    across_documents: bool
    without_prefix: int
    overlap_in_loss: bool | None
    loss_spans: bool


class MixtureArguments(RowArguments, total=False):
    """The fields of BatchOptions, Targets and OrderOptions, without `epochs`."""

    batch_size: int | Ramp | None
    global_batch_size: int | Ramp | None
    tokens_per_batch: int | Ramp | None
    rank: int | None
    world_size: int | None
    seed: int
    shuffle: Literal["global", "blocks", "none"]
    restart: bool
    even_attention: bool
    metrics: str | Path | None


class LoaderArguments(MixtureArguments, total=False):
    """The fields of OrderOptions, BatchOptions and Targets."""

    epochs: int | None


class TextLoaderArguments(BatchArguments, total=False):
    """The fields of TextStreamOptions and BatchOptions, without the lengths."""

    dropout: float | None
    alpha: float | None
    seed: int
    epochs: int
    labels: Labels
    open_sequences: int
    max_segments: int | None
    format: str | Sequence[str]
    text_field: str | Sequence[str]
    text_template: str | None
    separator: str | None
    eos: str | None
    pad: str | None
    max_bad: float


class CountArguments(ReadingArguments, total=False):
    """How texts are counted: also the fields of CountRecipe."""

    by: str | None
    min_count: int


class TrainArguments(CountArguments, total=False):
    """The fields of VocabularyOptions, SpecialOptions and GroupOptions, and CountArguments."""

    model: Model
    split: str | None
    vocabulary: int | None
    sizes: Sequence[int]
    digits: Digits
    whitespace_runs: int
    min_frequency: int
    max_token_length: int | None
    character_coverage: float | None
    limit_alphabet: int | None
    byte_fallback: bool
    special: Sequence[str]
    special_at: Literal["start", "end"]
    reserve: int
    eos: str | None
    bos: str | None
    pad: str | None
    unk: str | None
    mask: str | None
    chat_template: str | Path | None
    weight: Sequence[str]
    alpha: float | None
    byte_premium: Sequence[str]
    parity: Literal["base", "window"] | None
    parity_counts: str | Path | None


class ReportArguments(TypedDict, total=False):
    """How `report_tokenizers` reads its inputs: some fields of ReadOptions."""

    format: str | Sequence[str]
    text_field: str | Sequence[str]
    id_field: str | None
    separator: str | None
    streaming: bool

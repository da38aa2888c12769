"""tokenmill analyze"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tokenmill.cli.parser import Command, Json, Section
from tokenmill.cli.shapes import Quantity, ShapeOptions, shape_from
from tokenmill.cli.tables import length_lines, print_facts, print_json, print_table
from tokenmill.cli.terminal import fitted
from tokenmill.core.errors import UserError
from tokenmill.core.options import about, make_options
from tokenmill.core.values import counted, size_text
from tokenmill.run.recipe.checks import SECTIONS

if TYPE_CHECKING:
    from tokenmill.packing.costs import ModelShape
    from tokenmill.reports.lengths.analysis import Analysis

CONFIDENCE = "(95 % confidence)"
READING = ("read", "chat", "encode")
"""Sections of a recipe that decide how documents are read and encoded."""
WITHOUT = {"id_field", "keep", "no_loss", "validation", "max_documents", "max_tokens"}
"""Options of these sections that do not change lengths, or limit how much is read."""


class Analyze(Command, kw_only=True):
    """Compare sequence lengths."""

    usage: ClassVar[str] = "(DATASET | INPUT ... --tokenizer TOKENIZER) [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill analyze corpus/ --model 7b
  tokenmill analyze data/*.jsonl.zst --tokenizer gpt2 --sequence-lengths 1024,4096,16384
  tokenmill analyze corpus/ --layers 24 --hidden-size 2048 --tokens-per-batch 4M --csv"""
    common: ClassVar[tuple[str, ...]] = (
        *("tokenizer", "sequence_lengths", "model", "parameters", "tokens_per_batch"),
        *("activation_memory", "csv"),
    )
    sections: ClassVar[tuple[Section, ...]] = (
        Section("shape", ShapeOptions),
        *(Section(name, SECTIONS[name], without=WITHOUT) for name in READING),
    )

    inputs: Annotated[
        list[str],
        about("folder of a dataset, or inputs as for build", positional="CORPUS"),
    ]
    tokenizer: Annotated[
        str | None,
        about("as for build; only if CORPUS is not a dataset", metavar="TOKENIZER"),
    ] = None
    sequence_lengths: Annotated[
        tuple[int, ...] | None,
        about("lengths to compare (default: 512 to 32768, doubling)", unit="tokens", metavar="N,N"),
    ] = None
    model: Annotated[
        str | None,
        about("a published model: 7b, llama-3-8b, gpt2, ... (default: llama-2-7b)"),
    ] = None
    parameters: Annotated[
        Quantity | None,
        about("a model shaped like Llama with N parameters without the vocabulary: 1.3B, 350M"),
    ] = None
    tokens_per_batch: Annotated[
        Quantity | None,
        about("tokens in a global batch, e.g. 4M (default: 524288)"),
    ] = None
    activation_memory: Annotated[
        int | None,
        about(
            "memory that a device has left for activations and logits, e.g. 24GB; "
            "shows how many rows fit",
            unit="bytes",
        ),
    ] = None
    seed: Annotated[int, about("seed of the sample (default: 0)")] = 0
    json: Json = False
    csv: Annotated[bool, about("the result as CSV, one line per length")] = False

    def run(self) -> None:
        from tokenmill.api.analysis import analyze
        from tokenmill.cli.meter import meter

        asked: dict[str, Any] = {}
        for name in READING:
            asked |= self.given.get(name, {})
        if shape := self._shape():
            asked["model"] = shape
        if self.sequence_lengths is not None:
            asked["sequence_lengths"] = self.sequence_lengths
        if self.tokens_per_batch is not None:
            asked["tokens_per_batch"] = round(self.tokens_per_batch)
        with meter() as advance:
            found = analyze(
                self.inputs,
                self.tokenizer,
                activation_memory=self.activation_memory,
                seed=self.seed,
                advance=advance,
                **asked,
            )
        if self.json:
            print_json(found)
        elif self.csv:
            from tokenmill.reports.lengths.analysis import csv_lines

            print(csv_lines(found), end="")
        else:
            _print(found)

    def _shape(self) -> str | ModelShape | None:
        """The model given by its name, its sizes or its parameters; None for the default."""
        from tokenmill.packing.costs import shape_of_size

        sizes = make_options(ShapeOptions, self.given.get("shape", {}), "the model")
        spelled = shape_from(sizes, self.model)
        if self.parameters is None:
            if spelled is None and sizes.hidden_size is not None:
                raise UserError("the shape of a model needs --hidden-size and --layers")
            return spelled or self.model
        if spelled or self.model or sizes.hidden_size is not None:
            raise UserError(
                "--parameters, --model and the sizes of a model cannot be combined",
                hint="give one",
            )
        return shape_of_size(self.parameters)


def _print(found: Analysis) -> None:
    """Print the whole analysis."""
    print_facts(list(_facts(found)))
    print("", *length_lines(found.histogram), "", sep="\n")
    print_table(
        ["percentile", *map(str, found.percentiles)],
        [
            ["documents", *(f"{length:,}" for length in found.percentiles.values())],
            ["tokens", *(f"{length:,}" for length in found.token_percentiles.values())],
        ],
    )
    for table in (_rows(found), _costs(found)):
        print()
        print_table(*table)
    print()
    print_facts([("note", note) for note in _notes(found)])
    print(f"\nrecommended: sequences of {found.recommendation.sequence_length:,} tokens (*)")
    for reason in found.recommendation.reasons:
        print(fitted(f"- {reason}"))


def _facts(found: Analysis) -> Iterator[tuple[str, str]]:
    yield "corpus", found.corpus
    sampled, margins = found.sampled, found.margins
    documents, tokens = counted(found.documents, "document"), counted(found.tokens, "token")
    if sampled is None or sampled.is_whole:
        yield "documents", f"{documents} with {tokens}"
    else:
        yield "documents", f"about {documents} with {tokens}"
        if margins is not None:
            off = f"{margins.documents:,.0f} documents and {margins.tokens:,.0f} tokens"
            yield "error", f"at most {off} {CONFIDENCE}"
        else:
            yield "error", "unknown: the sample is too small"
    seen = "" if sampled is None or sampled.is_whole else " in the sample"
    longest = counted(found.longest, "token")
    yield "lengths", f"{found.shortest:,} to {longest}{seen}, {found.mean:,.1f} on average"
    if sampled is not None:
        whole = "all" if sampled.is_whole else f"of {size_text(sampled.input_bytes)}"
        read = f"{counted(sampled.documents, 'document')}, {size_text(sampled.num_bytes)}, {whole}"
        yield "read", f"{read}, {sampled.rejected} rejected, {sampled.damaged} damaged files"
        yield "engine", sampled.engine
    yield from _model(found.model)
    yield "batch", counted(found.budget.tokens_per_batch, "token")


def _model(shape: ModelShape) -> Iterator[tuple[str, str]]:
    from tokenmill.packing.costs import training_bytes

    heads = f"{shape.num_heads} heads, {shape.num_kv_heads} key/value heads"
    yield "model", f"{shape.name}: {shape.num_layers} layers of {shape.hidden_size:,}, {heads}"
    parameters, vocabulary = shape.non_vocabulary_parameters, ", without a vocabulary"
    if shape.vocabulary_size:
        parameters = shape.parameters(shape.vocabulary_size)
        vocabulary = f", with a vocabulary of {shape.vocabulary_size:,}"
    state = size_text(training_bytes(parameters))
    yield "state", f"{state} in training: {parameters:,} parameters{vocabulary}, with Adam's state"


def _rows(found: Analysis) -> tuple[list[str], list[list[str]]]:
    """The table of cuts, fill and sequences for each length."""
    header = ["length", "documents cut", "their tokens", "from start", "sequences", "fill"]
    header += ["alone", "masked"]
    margins = found.margins
    lines = []
    for each in found.rows:
        cut = f"{each.cut_documents:,} ({each.cut_share:.1%})"
        sequences = f"{each.sequences:,}"
        if margins is not None:
            cut = f"{each.cut_share:.1%} ±{margins.cut_shares[each.sequence_length]:.1%}"
            relative = margins.sequences[each.sequence_length] / each.sequences
            sequences += f" ±{relative:.0%}"
        lines.append(
            [
                _length(each.sequence_length, found),
                cut,
                f"{each.cut_token_share:.1%}",
                f"{each.from_start_share:.1%}",
                sequences,
                f"{each.fill:.2%}",
                f"{each.padded_fill:.1%}",
                f"{each.attention_share:.0%}",
            ]
        )
    return header, lines


def _costs(found: Analysis) -> tuple[list[str], list[list[str]]]:
    """The table of FLOPs, memory and steps for each length."""
    header = ["length", "dense", "masked", "other FLOPs", "activations", "+ scores", "KV cache"]
    header += ["rows", "steps"]
    asks_fit = found.budget.activation_memory is not None
    header += ["fit", "passes"] if asks_fit else []
    lines = []
    for each in found.costs:
        line = [
            _length(each.sequence_length, found),
            f"{each.dense_attention_flops:.2e}",
            f"{each.masked_attention_flops:.2e}",
            "-" if each.matrix_flops is None else f"{each.matrix_flops:.2e}",
            size_text(each.activation_bytes),
            size_text(each.score_bytes),
            size_text(each.kv_cache_bytes),
            f"{each.batch_rows:,}",
            f"{each.steps:,}",
        ]
        if asks_fit:
            line.append(f"{each.rows_that_fit:,}")
            line.append("-" if each.accumulation_steps is None else f"{each.accumulation_steps:,}")
        lines.append(line)
    return header, lines


def _notes(found: Analysis) -> Iterator[str]:
    yield "from start: share of tokens in the same sequence as the start of their document"
    yield "fill: packed with best-fit; alone: with one document, or part of one, per row"
    yield "masked: attention inside documents, as a share and in FLOPs; dense: over whole rows"
    yield "FLOPs: of one epoch, forward and backward; memory: of one row, 2 bytes per number"
    yield "+ scores: added by kernels that store attention scores; KV cache: during inference"
    yield "rows: per batch; steps: per epoch"
    if found.budget.activation_memory is not None:
        yield "fit: rows that fit in --activation-memory; passes: per step on one device"


def _length(length: int, found: Analysis) -> str:
    return f"{length:,}{' *' if length == found.recommendation.sequence_length else ''}"

"""How `analyze` shows its result: facts, a histogram, two tables, and reasons."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from tokenmill.cli.tables import bar, print_facts, print_table
from tokenmill.cli.terminal import counted, size_text
from tokenmill.pack.costs import ModelShape, training_bytes
from tokenmill.report.lengths.analysis import Analysis

WIDTH = 100
CONFIDENCE = "(95 % confidence)"


def print_analysis(found: Analysis) -> None:
    """Print the whole analysis."""
    print_facts(list(_facts(found)))
    print("\nlengths of documents in tokens, and the share of documents and of tokens\n")
    print("\n".join(_histogram(found)))
    print()
    print_table(
        ["percentile", *map(str, found.percentiles)],
        [
            ["documents", *(f"{length:,}" for length in found.percentiles.values())],
            ["tokens", *(f"{length:,}" for length in found.token_percentiles.values())],
        ],
    )
    print()
    print_table(*_rows(found))
    print()
    print_table(*_costs(found))
    print()
    print_facts([("note", note) for note in _notes(found)])
    print(f"\nrecommended: sequences of {found.recommendation.sequence_length:,} tokens (*)")
    for reason in found.recommendation.reasons:
        print(textwrap.fill(reason, WIDTH, initial_indent="- ", subsequent_indent="  "))


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
    heads = f"{shape.num_heads} heads, {shape.num_kv_heads} key/value heads"
    yield "model", f"{shape.name}: {shape.num_layers} layers of {shape.hidden_size:,}, {heads}"
    parameters, vocabulary = shape.non_vocabulary_parameters, ", without a vocabulary"
    if shape.vocabulary_size:
        parameters = shape.parameters(shape.vocabulary_size)
        vocabulary = f", with a vocabulary of {shape.vocabulary_size:,}"
    state = size_text(training_bytes(parameters))
    yield "state", f"{state} in training: {parameters:,} parameters{vocabulary}, with Adam's state"


def _histogram(found: Analysis) -> Iterator[str]:
    """One line per bin, its bar relative to the bin with the most documents."""
    most = max(each.documents for each in found.histogram)
    names = [f"{each.low:,} to {each.high:,}" for each in found.histogram]
    width = max(map(len, names))
    for name, each in zip(names, found.histogram, strict=True):
        shares = f"{each.documents / found.documents:6.1%} {each.tokens / found.tokens:6.1%}"
        yield f"{name:>{width}}  {bar(each.documents / most)}  {shares}"


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

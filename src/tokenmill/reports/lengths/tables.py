"""The facts and the tables of an analysis of lengths, for terminals and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tokenmill.core.tables import Cell, Fact, Number, Table, known, number, percent, size, table_of
from tokenmill.core.values import counted, size_text
from tokenmill.packing.costs import training_bytes
from tokenmill.reports.lengths.analysis import Analysis
from tokenmill.reports.lengths.figures import CostFigures, RowFigures


def model_facts(found: Analysis) -> Iterator[Fact]:
    """The model and the batch that costs are for."""
    shape = found.model
    heads = f"{shape.num_heads} heads, {shape.num_kv_heads} key/value heads"
    yield "model", f"{shape.name}: {shape.num_layers} layers of {shape.hidden_size:,}, {heads}"
    parameters, vocabulary = shape.non_vocabulary_parameters, ", without a vocabulary"
    if shape.vocabulary_size:
        parameters = shape.parameters(shape.vocabulary_size)
        vocabulary = f", with a vocabulary of {shape.vocabulary_size:,}"
    state = size_text(training_bytes(parameters))
    yield "state", f"{state} in training: {parameters:,} parameters{vocabulary}, with Adam's state"
    yield "batch", counted(found.budget.tokens_per_batch, "token")


def percentile_table(found: Analysis) -> Table:
    """Percentiles of documents, and of documents weighted by their tokens."""
    kinds = {"documents": found.percentiles, "tokens": found.token_percentiles}
    rows = [[name, *map(number, lengths.values())] for name, lengths in kinds.items()]
    return ["percentile", *map(str, found.percentiles)], rows


def row_table(found: Analysis) -> Table:
    """Cuts, fill and sequences for each length."""
    margins = found.margins

    def cut(row: RowFigures) -> Cell:
        if margins is None:
            return Number(row.cut_share, f"{row.cut_documents:,} ({row.cut_share:.1%})")
        error = margins.cut_shares[row.sequence_length]
        return Number(row.cut_share, f"{row.cut_share:.1%} ±{error:.1%}")

    def sequences(row: RowFigures) -> Cell:
        if margins is None:
            return number(row.sequences)
        error = margins.sequences[row.sequence_length] / row.sequences
        return Number(row.sequences, f"{row.sequences:,} ±{error:.0%}")

    return table_of(
        {
            "length": lambda row: _length(row.sequence_length, found),
            "documents cut": cut,
            "their tokens": lambda row: percent(row.cut_token_share, 1),
            "from start": lambda row: percent(row.from_start_share, 1),
            "sequences": sequences,
            "fill": lambda row: percent(row.fill),
            "alone": lambda row: percent(row.padded_fill, 1),
            "masked": lambda row: percent(row.attention_share, 0),
        },
        found.rows,
    )


def cost_table(found: Analysis) -> Table:
    """FLOPs, memory and steps for each length."""
    columns: dict[str, Callable[[CostFigures], Cell]] = {
        "length": lambda cost: _length(cost.sequence_length, found),
        "dense": lambda cost: number(cost.dense_attention_flops, ".2e"),
        "masked": lambda cost: number(cost.masked_attention_flops, ".2e"),
        "other FLOPs": lambda cost: known(cost.matrix_flops, ".2e"),
        "activations": lambda cost: size(cost.activation_bytes),
        "+ scores": lambda cost: size(cost.score_bytes),
        "KV cache": lambda cost: size(cost.kv_cache_bytes),
        "rows": lambda cost: number(cost.batch_rows),
        "steps": lambda cost: number(cost.steps),
    }
    if found.budget.activation_memory is not None:
        columns["fit"] = lambda cost: known(cost.rows_that_fit)
        columns["passes"] = lambda cost: known(cost.accumulation_steps)
    return table_of(columns, found.costs)


def notes(found: Analysis) -> Iterator[Fact]:
    """What the columns of the tables mean."""
    yield "from start", "share of tokens in the same sequence as the start of their document"
    yield "fill", "packed with best-fit; alone: with one document, or part of one, per row"
    yield "masked", "attention inside documents, as a share and in FLOPs; dense: over whole rows"
    yield "FLOPs", "of one epoch, forward and backward; memory: of one row, 2 bytes per number"
    yield "+ scores", "added by kernels that store attention scores; KV cache: during inference"
    yield "rows", "per batch; steps: per epoch"
    if found.budget.activation_memory is not None:
        yield "fit", "rows that fit in --activation-memory; passes: per step on one device"


def _length(length: int, found: Analysis) -> Cell:
    is_best = found.recommendation.is_for(length)
    return Number(length, f"{length:,}{' *' if is_best else ''}")

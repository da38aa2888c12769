"""tokenmill tokenizer advise"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.cli.parser import Parser, length, whole_number
from tokenmill.cli.shapes import add_shape_arguments, quantity, shape_from

if TYPE_CHECKING:
    from tokenmill.vocabulary.advice.advise import SizeCosts, VocabularyAdvice

EXAMPLES = """\
examples:
  tokenmill tokenizer advise --parameters 1.3B
  tokenmill tokenizer advise --parameters 1.3B --on counts/
  tokenmill tokenizer advise --model llama-3-8b --compute 1e24 --on counts/
  tokenmill tokenizer advise --hidden-size 2048 --layers 24 --tied --sizes 32000,64000"""
COMMON = ("parameters", "compute", "model", "on", "sizes", "tied")


def add_arguments(parser: Parser) -> None:
    """The options of this action."""
    parser.usage = f"{parser.prog} (--parameters N | --compute FLOPS | --model NAME) [options]"
    parser.epilog = EXAMPLES
    parser.common = COMMON
    parser.add_argument(
        "--parameters",
        type=quantity,
        metavar="N",
        help="parameters without embedding and output matrix: 1.3B, 350M",
    )
    parser.add_argument("--compute", type=quantity, metavar="FLOPS", help="FLOPs of training: 1e21")
    parser.add_argument("--model", metavar="NAME", help="a published model: llama-3-8b, gpt2, ...")
    parser.add_argument(
        "--on", metavar="COUNTS", help="folder of word counts: also measure this corpus"
    )
    parser.add_argument(
        "--weight",
        action="append",
        default=[],
        type=_weight,
        metavar="GROUP=N",
        help="count a group N times instead of once; may be repeated",
    )
    parser.add_argument(
        "--sizes", type=_numbers, default=(), metavar="N,N", help="more sizes to show"
    )
    parser.add_argument(
        "--tied",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether input and output share one matrix",
    )
    parser.add_argument(
        "--sequence-length",
        type=length,
        default=4096,
        metavar="N",
        help="sequence length for the FLOPs of attention (default: 4096)",
    )
    parser.add_argument(
        "--multiple",
        type=whole_number,
        default=128,
        metavar="N",
        help="round the recommendation up to a multiple of N (default: 128)",
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    add_shape_arguments(
        parser, hidden_size="hidden size; without --layers, it belongs to the model of --parameters"
    )


def run(options: argparse.Namespace) -> int:
    """Print the advice; returns the exit code."""
    from tokenmill.api.tokenizers import advise_vocabulary
    from tokenmill.cli.meter import meter

    shape = shape_from(options, tied=bool(options.tied))
    with meter() as advance:
        advice = advise_vocabulary(
            model=options.model or shape,
            parameters=options.parameters,
            compute=options.compute,
            hidden_size=None if shape else options.hidden_size,
            tied=options.tied,
            on=options.on,
            weights=dict(options.weight) or None,
            sizes=options.sizes,
            sequence_length=options.sequence_length,
            multiple=options.multiple,
            advance=advance,
        )
    if options.json:
        import msgspec

        print(msgspec.json.encode(_values(advice)).decode())
    else:
        _print(advice)
    return 0


def _numbers(text: str) -> list[int]:
    return [whole_number(number) for number in text.split(",")]


def _weight(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    return name, whole_number(number)


def _print(advice: VocabularyAdvice) -> None:
    from tokenmill.cli.tables import print_facts, print_table

    print_facts(list(_facts(advice)))
    print()
    print_table(*_costs(advice))
    print()
    for reason in advice.reasons:
        print(f"- {reason}")


def _facts(advice: VocabularyAdvice) -> Iterator[tuple[str, str]]:
    model = advice.model
    name = f"{model.shape.name}, " if model.shape else ""
    yield (
        "model",
        f"{name}{model.parameters:,} parameters without the vocabulary, hidden size "
        f"{model.hidden_size:,}, {'one matrix' if model.tied else 'two matrices'}",
    )
    for assumption in model.assumptions:
        yield "assumed", assumption
    if advice.corpus is not None:
        corpus = advice.corpus
        yield "corpus", f"{corpus.num_characters:,} characters, {corpus.num_bytes:,} bytes"
    for approach in advice.approaches:
        mark = "" if approach.followed else " (not followed)"
        yield approach.name, f"{approach.size:,}: {approach.explanation}{mark}"
    yield "recommended", f"{advice.recommended:,} (from {advice.lowest:,} to {advice.highest:,})"


def _costs(advice: VocabularyAdvice) -> tuple[list[str], list[list[str]]]:
    """The table with one line for each size."""
    measured = advice.corpus is not None
    header = ["vocabulary", "tokens/char"]
    if measured:
        header += ["bytes/token", "tokens", "FLOPs to read"]
    header += ["same text", "embeddings", "share", "loss"]
    return header, [_row(costs, advice, measured) for costs in advice.sizes]


def _row(costs: SizeCosts, advice: VocabularyAdvice, measured: bool) -> list[str]:
    star = " *" if costs.size == advice.recommended else ""
    row = [f"{costs.size:,}{star}", f"{costs.tokens_per_character:.4f}"]
    if measured:
        row += [
            "-" if costs.bytes_per_token is None else f"{costs.bytes_per_token:.3f}",
            "-" if costs.tokens is None else f"{costs.tokens:,}",
            "-" if costs.flops is None else f"{costs.flops:.3e}",
        ]
    return [
        *row,
        f"{costs.relative_flops:.3f}",
        f"{costs.embedding_parameters / 1e6:,.1f} M",
        f"{costs.embedding_share:.1%}",
        f"+{costs.added_loss:.4f}",
    ]


def _values(advice: VocabularyAdvice) -> dict[str, Any]:
    """The advice for JSON, without the curve of lengths."""
    import dataclasses

    values = dataclasses.asdict(dataclasses.replace(advice, corpus=None))
    if advice.corpus is not None:
        corpus = advice.corpus
        values["corpus"] = {
            "characters": corpus.num_characters,
            "bytes": corpus.num_bytes,
            "left_out_bytes": corpus.left_out_bytes,
            "smallest_size": corpus.smallest_size,
            "largest_size": corpus.largest_size,
        }
    return values

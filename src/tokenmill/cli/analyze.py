"""tokenmill analyze"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from tokenmill.cli.options import add_sections, given_options
from tokenmill.cli.parser import Parser, lengths, whole_number
from tokenmill.cli.shapes import add_shape_arguments, quantity, shape_from
from tokenmill.run.recipe.checks import SECTIONS

if TYPE_CHECKING:
    from tokenmill.pack.costs import ModelShape

EXAMPLES = """\
examples:
  tokenmill analyze corpus/ --model 7b
  tokenmill analyze data/*.jsonl.zst --tokenizer gpt2 --sequence-lengths 1024,4096,16384
  tokenmill analyze corpus/ --layers 24 --hidden-size 2048 --tokens-per-batch 4M --csv"""
COMMON = (
    *("tokenizer", "sequence_lengths", "model", "parameters", "tokens_per_batch"),
    *("activation_memory", "csv"),
)
READING = [name for name in SECTIONS if name not in ("limits", "resources", "pack", "export")]
"""Sections of a recipe that decide how documents are read and encoded."""
WITHOUT = {"id_field", "keep", "no_loss", "validation", "max_documents", "max_tokens"}
"""Options of these sections that do not change lengths, or limit how much is read."""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill analyze (DATASET | INPUT ... --tokenizer TOKENIZER) [options]"
    parser.epilog = EXAMPLES
    parser.common = COMMON
    parser.add_argument(
        "inputs", nargs="+", metavar="CORPUS", help="folder of a dataset, or inputs as for build"
    )
    parser.add_argument(
        "--tokenizer", metavar="TOKENIZER", help="as for build; only if CORPUS is not a dataset"
    )
    parser.add_argument(
        "--sequence-lengths",
        type=lengths,
        metavar="N,N",
        help="lengths to compare (default: 512 to 32768, doubling)",
    )
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="a published model: 7b, llama-3-8b, gpt2, ... (default: llama-2-7b)",
    )
    parser.add_argument(
        "--parameters",
        type=quantity,
        metavar="N",
        help="a model shaped like Llama with N parameters without the vocabulary: 1.3B, 350M",
    )
    parser.add_argument(
        "--tokens-per-batch",
        type=quantity,
        metavar="N",
        help="tokens in a global batch, e.g. 4M (default: 524288)",
    )
    parser.add_argument(
        "--activation-memory",
        type=_size,
        metavar="SIZE",
        help="memory that a device has left for activations and logits, e.g. 24GB; shows how many "
        "rows fit",
    )
    parser.add_argument(
        "--seed", type=whole_number, default=0, metavar="N", help="seed of the sample (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    parser.add_argument("--csv", action="store_true", help="the result as CSV, one line per length")
    add_shape_arguments(parser)
    add_sections(parser, {name: SECTIONS[name] for name in READING}, WITHOUT)


def run(options: argparse.Namespace) -> int:
    """Print the analysis; returns the exit code."""
    from tokenmill.api.analysis import analyze
    from tokenmill.cli.meter import meter
    from tokenmill.core.errors import UserError

    if options.json and options.csv:
        raise UserError("--json and --csv cannot be combined")
    asked: dict[str, Any] = {}
    for name in READING:
        asked |= given_options(options, SECTIONS[name])
    if shape := _shape(options):
        asked["model"] = shape
    if options.sequence_lengths is not None:
        asked["sequence_lengths"] = options.sequence_lengths
    if options.tokens_per_batch is not None:
        asked["tokens_per_batch"] = round(options.tokens_per_batch)
    with meter() as advance:
        found = analyze(
            options.inputs,
            options.tokenizer,
            activation_memory=options.activation_memory,
            seed=options.seed,
            advance=advance,
            **asked,
        )
    if options.json:
        import dataclasses

        import msgspec

        print(msgspec.json.encode(dataclasses.asdict(found)).decode())
    elif options.csv:
        from tokenmill.report.lengths.lines import csv_lines

        print(csv_lines(found), end="")
    else:
        from tokenmill.cli.analysis_display import print_analysis

        print_analysis(found)
    return 0


def _shape(options: argparse.Namespace) -> str | ModelShape | None:
    """The model given by its name, its sizes or its parameters; None for the default."""
    from tokenmill.core.errors import UserError
    from tokenmill.pack.costs import shape_of_size

    spelled = shape_from(options)
    if options.parameters is None:
        if spelled is None and options.hidden_size is not None:
            raise UserError("the shape of a model needs --hidden-size and --layers")
        return spelled or options.model
    if spelled or options.model or options.hidden_size is not None:
        raise UserError(
            "--parameters, --model and the sizes of a model cannot be combined", hint="give one"
        )
    return shape_of_size(options.parameters)


def _size(text: str) -> int:
    from tokenmill.run.recipe.spellings import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error

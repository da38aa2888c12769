"""tokenmill tokenizer report"""

from __future__ import annotations

import argparse
import dataclasses

from tokenmill.cli.options import with_line_ends
from tokenmill.cli.parser import Parser, lengths, whole_number
from tokenmill.cli.tokenizers.facts import add_tokenizer_arguments, named_encoding

EXAMPLES = """\
examples:
  tokenmill tokenizer report tokenizer.json --on corpus/
  tokenmill tokenizer report mine/ gpt2 --on data/*.jsonl.zst --by language --model llama-3-8b
  tokenmill tokenizer report mine/ gpt2 --on flores/*.jsonl --by language --base en --csv"""


def add_arguments(parser: Parser) -> None:
    """The options of this action."""
    parser.usage = "tokenmill tokenizer report TOKENIZER [TOKENIZER ...] --on INPUT [options]"
    parser.epilog = EXAMPLES
    add_tokenizer_arguments(parser, "tokenizer", several=True)
    parser.add_argument(
        "--on",
        nargs="+",
        required=True,
        metavar="INPUT",
        help="a dataset, for its sources; files, folders, globs; or a folder of word counts",
    )
    _add_measures(parser)
    _add_reading(parser)
    parser.add_argument(
        "--workers",
        type=whole_number,
        metavar="N",
        help="worker processes (default: 80%% of the physical cores; one for small inputs)",
    )
    parser.add_argument("--csv", action="store_true", help="the result as CSV, one line per figure")


def _add_measures(parser: Parser) -> None:
    """Add the options that choose the figures."""
    parser.add_argument(
        "--by",
        metavar="COLUMN",
        help="group documents by a field (language, domain, ...; NAME? if only some "
        "records have it), or by `input`",
    )
    parser.add_argument(
        "--base",
        metavar="GROUP",
        help="for parallel text: show each group's premium over this one, and the Gini coefficient",
    )
    parser.add_argument(
        "--words",
        default="uax29",
        metavar="RULE",
        help="how words are split: uax29 (default), whitespace, characters",
    )
    parser.add_argument(
        "--sequence-length",
        type=lengths,
        default=(2048, 8192),
        metavar="N,N",
        help="row lengths in tokens (default: 2048,8192)",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="a published model, to show FLOPs: gpt2, llama-3-8b, ..."
    )


def _add_reading(parser: Parser) -> None:
    """Add the options for reading inputs."""
    parser.add_argument(
        "--text-field",
        default="text",
        metavar="NAME",
        help="field that holds the text (default: text)",
    )
    parser.add_argument(
        "--id-field",
        metavar="NAME",
        help="field with an id; translations with the same id are resampled together",
    )
    parser.add_argument(
        "--format", default="auto", metavar="NAME", help="format of the inputs (default: auto)"
    )
    parser.add_argument(
        "--separator",
        type=with_line_ends,
        metavar="TEXT",
        help=r"plain text: the string between two documents, e.g. '\n---\n'",
    )


def run(options: argparse.Namespace) -> int:
    """Measure, showing progress; returns the exit code."""
    from tokenmill.api.tokenizers import report_tokenizers
    from tokenmill.cli.meter import meter
    from tokenmill.core.errors import UserError

    if options.json and options.csv:
        raise UserError("--json and --csv cannot be combined")
    if options.workers is not None and options.workers < 1:
        raise UserError(f"--workers must be at least 1, got {options.workers}")
    with meter() as advance:
        report = report_tokenizers(
            options.tokenizer,
            options.on,
            by=options.by,
            base=options.base,
            words=options.words,
            sequence_lengths=sorted({*options.sequence_length}),
            model=options.model,
            text_field=options.text_field,
            id_field=options.id_field,
            format=options.format,
            separator=options.separator,
            encoding=named_encoding(options),
            workers=options.workers,
            advance=advance,
        )
    if options.json:
        import msgspec

        print(msgspec.json.encode(dataclasses.asdict(report)).decode())
    elif options.csv:
        from tokenmill.report.tokenizers.lines import csv_lines

        print(csv_lines(report), end="")
    else:
        from tokenmill.cli.tokenizers.report_display import print_report

        print_report(report)
    return 0

"""tokenmill rows"""

from __future__ import annotations

import argparse
from typing import Any

from tokenmill.cli.options import add_section, given_options
from tokenmill.cli.parser import Parser
from tokenmill.cli.quantities import counted
from tokenmill.run.recipe.tokenizer_section import CausalLMConfig, check_section, load_section

EXAMPLES = """\
examples:
  tokenmill rows --config tokenizer.yaml --dataset data.jsonl --out rows/
  tokenmill rows --config tokenizer.yaml --dataset OWNER/NAME --split train --out rows/
  tokenmill rows --tokenizer-name tokenizer.json --context-length 2048 --packing best-fit \\
      --dtype int32 --dataset data/ --out rows/"""
COMMON = (
    *("config", "dataset", "out", "split", "tokenizer_name", "context_length", "packing"),
    *("columns", "dtype", "overwrite"),
)
"""What most runs need."""
CHOICES = {"auto": "auto", "true": True, "false": False}


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.common = COMMON
    parser.usage = "tokenmill rows --config FILE --dataset NAME_OR_PATH --out DIR [options]"
    parser.epilog = EXAMPLES
    parser.add_argument("--config", metavar="FILE", help="YAML file with a section `tokenizer`")
    parser.add_argument(
        "--dataset",
        required=True,
        metavar="NAME_OR_PATH",
        help="file, folder, folder written by save_to_disk, or name on the Hub",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the rows")
    parser.add_argument("--subset", metavar="NAME", help="configuration of a dataset on the Hub")
    parser.add_argument("--split", metavar="NAME", help="a single split, e.g. train (default: all)")
    parser.add_argument("--revision", metavar="NAME", help="revision of a dataset on the Hub")
    parser.add_argument("--overwrite", action="store_true", help="replace other rows in --out")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    group = parser.add_argument_group("rows", "override the options of the YAML file")
    names = [name for name in CausalLMConfig.__struct_fields__ if name != "append_eos"]
    add_section(group, CausalLMConfig, names)
    group.add_argument(
        "--append-eos",
        choices=list(CHOICES),
        help="end each document with the end-of-document token (default: auto)",
    )


def run(options: argparse.Namespace) -> int:
    """Make rows, showing progress; returns the exit code."""
    import msgspec

    from tokenmill.hf import CausalLMTokenizer
    from tokenmill.hf.loading import load

    tokenizer = CausalLMTokenizer(_configuration(options))
    dataset = load(
        options.dataset, subset=options.subset, split=options.split, revision=options.revision
    )
    result = tokenizer.tokenize(dataset, out=options.out, force=options.overwrite)
    splits = result if isinstance(result, dict) else {str(result.split or ""): result}
    if options.json:
        facts = {"out": options.out, **_facts(splits), **tokenizer.summary.as_dict()}
        print(msgspec.json.encode(facts).decode())
        return 0
    summary = tokenizer.summary
    print(f"{counted(summary.documents, 'document')} -> {counted(summary.rows, 'row')}")
    for name, rows in splits.items():
        features = ", ".join(f"{key} {kind.feature.dtype}" for key, kind in rows.features.items())
        print(f"{name or options.out}: {counted(len(rows), 'row')} of {features}")
    print(f'open them with datasets.load_from_disk("{options.out}")')
    return 0


def _configuration(options: argparse.Namespace) -> CausalLMConfig:
    """The options of the YAML file, overridden by those of the command line.

    Raises:
        UserError: the file has no section `tokenizer`, or an option is wrong.
    """
    values = load_section(options.config) if options.config else {}
    where = options.config or "the command line"
    given = given_options(options, CausalLMConfig)
    if "append_eos" in given:
        given["append_eos"] = CHOICES[given["append_eos"]]
    if "subword_regularisation" in given:
        given["subword_regularisation"] = float(given["subword_regularisation"])
    return check_section({**values, **given}, where)


def _facts(splits: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(splits.values()))
    return {
        "splits": {name: len(rows) for name, rows in splits.items()},
        "columns": {key: kind.feature.dtype for key, kind in first.features.items()},
    }

"""Shared parts of `tokenmill tokenizer extend` and `trim`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tokenmill.cli.parser import Parser
from tokenmill.cli.tokenizers.facts import add_encoding_and_json

if TYPE_CHECKING:
    from tokenmill.vocabulary.changing.change import TokenizerChange

NUM_EXAMPLES = 12


def add_change_arguments(parser: Parser) -> None:
    """Add the tokenizer, the corpus and the output."""
    parser.add_argument(
        "base",
        metavar="BASE",
        help="the tokenizer: tokenizer.json, its folder, .tiktoken, Hub name, or a dataset",
    )
    parser.add_argument(
        "--on",
        required=True,
        nargs="+",
        metavar="INPUT",
        help="corpus that decides: files, folders, globs, or one folder of word counts",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the new tokenizer")
    add_encoding_and_json(parser)


def print_change(change: TokenizerChange, summary: str, *, as_json: bool) -> int:
    """Print the result; returns the exit code."""
    import msgspec

    from tokenmill.cli.tables import print_facts

    if as_json:
        record = msgspec.to_builtins(change.record)
        print(json.dumps({"folder": str(change.folder), **record, "tokens": change.tokens}))
        return 0
    figures = change.record.figures
    before, after = figures["tokens_before"], figures["tokens_after"]
    share = f"{abs(before - after) / max(before, 1):.1%}"
    lengths = f"{before:,} -> {after:,} tokens, {share} {'saved' if after <= before else 'more'}"
    # Bytes that are not a whole character are escaped already; do not escape them twice.
    examples = ", ".join(map(repr, change.tokens[:NUM_EXAMPLES])).replace("\\\\x", "\\x")
    names = [*(file.name for file in change.record.files), f"{change.record.action}.json"]
    facts = [
        ("tokens", summary),
        ("ids", f"{figures['ids_before']:,} -> {figures['ids_after']:,}"),
        ("corpus", lengths),
        ("examples", examples),
        ("written", f"{change.folder}: {', '.join(names)}"),
    ]
    print_facts(facts)
    return 0

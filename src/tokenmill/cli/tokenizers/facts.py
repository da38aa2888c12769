"""tokenmill tokenizer show, fingerprint, diff"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.cli.parser import Parser

if TYPE_CHECKING:
    from tokenmill.encode.encodings import RankEncoding
    from tokenmill.encode.fingerprint import Fingerprint
    from tokenmill.report.tokenizers.difference import Difference
    from tokenmill.report.tokenizers.facts import TokenizerFacts

DIFFERENT = 5
MAX_SHOWN_TOKENS = 12
SHOWN_DIGITS = 16
"""Digits shown of the digest of a component; `--json` has all."""


def add_arguments(parser: Parser) -> None:
    """The options of `show` and `fingerprint`."""
    parser.usage = f"{parser.prog} TOKENIZER [options]"
    add_tokenizer_arguments(parser, "tokenizer")


def add_two_tokenizers(parser: Parser) -> None:
    """The options of `diff`."""
    parser.usage = f"{parser.prog} TOKENIZER OTHER [options]"
    add_tokenizer_arguments(parser, "tokenizer", "other")


def add_tokenizer_arguments(parser: Parser, *names: str, several: bool = False) -> None:
    """Add tokenizers to describe; with `several`, the argument is a list."""
    for name in names:
        parser.add_argument(
            name,
            nargs="+" if several else None,
            metavar=name.upper(),
            help="tokenizer.json, its folder, .tiktoken, .model, Hub name, "
            "python:MODULE:NAME, or the folder of a dataset",
        )
    add_encoding_and_json(parser)


def add_encoding_and_json(parser: Parser) -> None:
    """Add the options for rank files and `--json`."""
    add_encoding_arguments(parser)
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")


def add_encoding_arguments(parser: Parser) -> None:
    """Add the options that describe an unknown rank file."""
    parser.add_argument(
        "--encoding",
        default="",
        metavar="NAME",
        help="encoding of a tiktoken rank file: cl100k_base, llama3, ...",
    )
    parser.add_argument(
        "--pattern", metavar="REGEX", help="split pattern of a rank file with an unknown encoding"
    )
    parser.add_argument(
        "--specials-from",
        metavar="FILE",
        help="special tokens of such a rank file: a JSON file with ids by content",
    )


def named_encoding(options: argparse.Namespace) -> str | RankEncoding:
    """The encoding from the options of `add_encoding_arguments`.

    Raises:
        UserError: the options contradict each other.
    """
    from tokenmill.encode.encodings import chosen_encoding

    return chosen_encoding(options.encoding, options.pattern, options.specials_from)


def show_fingerprint(options: argparse.Namespace) -> int:
    """Print the fingerprint of a tokenizer."""
    found = _fingerprint(options.tokenizer, named_encoding(options))
    if options.json:
        _print_json({"fingerprint": found.value, "components": found.digests})
    else:
        print(found.value)
    return 0


def show(options: argparse.Namespace) -> int:
    """Print the facts of a tokenizer."""
    from tokenmill.cli.tables import print_facts
    from tokenmill.report.tokenizers.facts import describe_tokenizer

    facts = describe_tokenizer(options.tokenizer, named_encoding(options))
    if options.json:
        _print_json(dataclasses.asdict(facts))
    else:
        print_facts(list(_facts(facts)))
    return 0


def show_difference(options: argparse.Namespace) -> int:
    """Compare two tokenizers; the exit code is 5 if they differ."""
    from tokenmill.report.tokenizers.difference import compare_tokenizers

    ours = _fingerprint(options.tokenizer, named_encoding(options))
    theirs = _fingerprint(options.other, named_encoding(options))
    differences = compare_tokenizers(ours, theirs)
    if options.json:
        values = [dataclasses.asdict(difference) for difference in differences]
        fingerprints = [ours.value, theirs.value]
        _print_json({"equal": not differences, "fingerprints": fingerprints, "differences": values})
    else:
        _print_differences(differences, ours, theirs)
    return DIFFERENT if differences else 0


def _fingerprint(tokenizer: str, encoding: str | RankEncoding) -> Fingerprint:
    from tokenmill.encode.fingerprint import fingerprint_of
    from tokenmill.report.tokenizers.source import open_tokenizer

    return fingerprint_of(open_tokenizer(tokenizer, encoding))


def _print_differences(
    differences: list[Difference], ours: Fingerprint, theirs: Fingerprint
) -> None:
    from tokenmill.cli.terminal import safe_text

    found = {difference.component: difference for difference in differences}
    if "kind" in found:
        print(f"{'kind':>13}  {ours.kind} -> {theirs.kind}: components cannot be compared")
        return
    for name in dict.fromkeys([*found, *ours.digests, *theirs.digests]):
        if name not in found:
            print(f"{name:>13}  equal")
            continue
        different = found[name]
        print(
            f"{name:>13}  {different.added:,} added, {different.removed:,} removed, "
            f"{different.changed:,} changed"
        )
        for example in different.examples:
            print(f"{'':>15}{safe_text(example)}")


def _facts(facts: TokenizerFacts) -> Iterator[tuple[str, str]]:
    yield "tokenizer", f"{facts.origin} ({facts.kind})"
    if facts.encodings:
        name, *others = facts.encodings
        same = f"; {', '.join(others)} would fit the ranks as well" if others else ""
        yield "encoding", name + same
    options = (f"{k} {v}" for k, v in facts.model.items() if k != "type" and v not in (None, False))
    yield "model", ", ".join([str(facts.model["type"]), *options])
    tokens = "" if facts.num_tokens is None else f"{facts.num_tokens:,} tokens, "
    yield "vocabulary", f"{tokens}largest id {facts.largest_id:,}, shards of {facts.token_dtype}"
    yield "normalizer", ", then ".join(facts.normalizer) or "none"
    yield "pre-tokenizer", ", then ".join(facts.pre_tokenizer) or "none"
    specials = sorted(facts.special_tokens.items(), key=lambda item: item[1])
    shown = ", ".join(f"{content} {i}" for content, i in specials[:MAX_SHOWN_TOKENS])
    more = len(specials) - MAX_SHOWN_TOKENS
    yield "special", (shown or "none") + (f", and {more:,} more" if more > 0 else "")
    yield "beginning", f"ids {facts.prefix_ids}" if facts.prefix_ids else "nothing"
    end = f"id {facts.eos_id}, from {facts.eos_reason}"
    yield "end", facts.eos_reason if facts.eos_id is None else end
    if facts.suffix_ids:
        yield "not written", f"ids {facts.suffix_ids}, which its post-processor adds after a text"
    yield "padding", "not named" if facts.pad_id is None else f"id {facts.pad_id}"
    yield "engine", facts.engines[0]
    for name, why in facts.objections.items():
        yield "not used", f"{name}: {why}"
    yield "fingerprint", facts.fingerprint
    for name, digest in facts.digests.items():
        yield name, f"sha256 {digest[:SHOWN_DIGITS]}..."


def _print_json(value: dict[str, Any]) -> None:
    import msgspec

    print(msgspec.json.encode(value).decode())

"""tokenmill tokenizer extend, trim"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec

from tokenmill.cli.parser import Json
from tokenmill.cli.tokenizers.facts import RankFile
from tokenmill.core.options import about
from tokenmill.core.values import counted

if TYPE_CHECKING:
    from tokenmill.vocabulary.changing.change import TokenizerChange

NUM_EXAMPLES = 12


class _Change(RankFile, kw_only=True):
    """The tokenizer, the corpus and the output."""

    base: Annotated[
        str,
        about(
            "the tokenizer: tokenizer.json, its folder, .tiktoken, Hub name, or a dataset",
            positional="BASE",
        ),
    ]
    on: Annotated[
        list[str],
        about(
            "corpus that decides: files, folders, globs, or one folder of word counts",
            example="data/",
            metavar="INPUT",
            nargs="+",
        ),
    ]
    out: Annotated[
        str,
        about("folder for the new tokenizer", example="new/", metavar="DIR"),
    ]
    json: Json = False


class Extend(_Change, kw_only=True):
    """Extend a tokenizer."""

    usage: ClassVar[str] = "BASE --on INPUT ... --add N --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill tokenizer extend tokenizer.json --on medical/ --add 4000 --out extended/
  tokenmill tokenizer count medical/ --split tokenizer.json --out counts/
  tokenmill tokenizer extend tokenizer.json --on counts/ --add 4000 --out extended/"""

    add: Annotated[int, about("number of tokens to add", example="4000")]
    min_frequency: Annotated[int, about("occurrences that a pair needs to become a token")] = 2

    def run(self) -> None:
        from tokenmill.api.tokenizers import extend_tokenizer
        from tokenmill.cli.meter import meter

        with meter() as advance:
            change = extend_tokenizer(
                self.base,
                self.on,
                self.out,
                add=self.add,
                min_frequency=self.min_frequency,
                encoding=self.rank_encoding,
                advance=advance,
            )
        figures = change.record.figures
        summary = f"{counted(figures['added'], 'token')} added"
        if figures["added"] < self.add:
            summary += f": no other pair occurs {self.min_frequency:,} times or more"
        if figures["revived"]:
            summary += f"; {counted(figures['revived'], 'old token')} can now be produced"
        if figures["words_left_out"]:
            words = counted(figures["words_left_out"], "unique word")
            summary += f"; skipped {words} that contain an added token"
        _print_change(change, summary, as_json=self.json)


class Trim(_Change, kw_only=True):
    """Trim a tokenizer."""

    usage: ClassVar[str] = "BASE --on INPUT ... --to N --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill tokenizer trim tokenizer.json --on data/ --to 24000 --out trimmed/
  tokenmill tokenizer count data/ --split tokenizer.json --out counts/
  tokenmill tokenizer trim tokenizer.json --on counts/ --to 24000 --out trimmed/"""

    to: Annotated[int, about("number of tokens to keep", example="24000")]

    def run(self) -> None:
        from tokenmill.api.tokenizers import trim_tokenizer
        from tokenmill.cli.meter import meter

        encoding = self.rank_encoding
        with meter() as advance:
            change = trim_tokenizer(
                self.base, self.on, self.out, to=self.to, encoding=encoding, advance=advance
            )
        figures = change.record.figures
        words = counted(figures["words_changed"], "unique word")
        summary = f"{counted(figures['removed'], 'token')} removed; {words} contained one"
        _print_change(change, summary, as_json=self.json)


def _print_change(change: TokenizerChange, summary: str, *, as_json: bool) -> None:
    from tokenmill.cli.tables import print_facts, print_json

    if as_json:
        record = msgspec.to_builtins(change.record)
        print_json({"folder": str(change.folder), **record, "tokens": change.tokens})
        return
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

"""tokenmill tokenizer train"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import msgspec

from tokenmill.cli.parser import Command, Json, Section
from tokenmill.cli.tables import print_facts, print_json, print_table
from tokenmill.core.options import about
from tokenmill.core.values import counted, size_text
from tokenmill.run.recipe.checks import SECTIONS as RECIPE
from tokenmill.run.recipe.options import NOT_FOR_COUNTS, CountRecipe
from tokenmill.vocabulary.training.options import (
    COUNTING,
    COUNTING_SECTIONS,
    SECTIONS,
)

if TYPE_CHECKING:
    from tokenmill.vocabulary.training.train import TrainReport


class Train(Command, kw_only=True):
    """Train a tokenizer, showing progress."""

    usage: ClassVar[str] = "INPUT ... --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill tokenizer train data/*.jsonl.zst --out T/
  tokenmill tokenizer train data/ --vocabulary 64000 --sizes 16000,32000 --digits groups-right \\
      --special '<|im_start|>' --special '<|im_end|>' --reserve 256 --out T/
  tokenmill tokenizer train counts/ --weight th=3 --out T/
  tokenmill tokenizer train data/ --model wordpiece --vocabulary 30522 --out T/"""
    common: ClassVar[tuple[str, ...]] = (
        *("out", "model", "split", "vocabulary", "sizes", "digits", "special", "eos", "reserve"),
        *("weight", "counts", "format", "text_field", "workers", "overwrite"),
    )
    sections: ClassVar[tuple[Section, ...]] = (
        *(Section(name, kind) for name, kind in SECTIONS.items()),
        Section("counting", CountRecipe, "how words are counted", only=COUNTING),
        *(Section(name, RECIPE[name], without=NOT_FOR_COUNTS) for name in COUNTING_SECTIONS),
    )

    inputs: Annotated[
        list[str],
        about(
            "files, folders, globs, hf:// URLs, or one folder of word counts", positional="INPUT"
        ),
    ]
    out: Annotated[
        str,
        about("folder for the tokenizer", example="T/", metavar="DIR"),
    ]
    counts: Annotated[
        str | None,
        about("keep the word counts in this folder, to train from them again", metavar="DIR"),
    ] = None
    overwrite: Annotated[bool, about("replace a trained tokenizer, but no other folder")] = False
    json: Json = False

    def run(self) -> None:
        from tokenmill.api.tokenizers import train_tokenizer
        from tokenmill.cli.meter import meter

        given: Any = {name: value for each in self.given.values() for name, value in each.items()}
        started = time.monotonic()
        with meter() as advance:
            report = train_tokenizer(
                self.inputs,
                self.out,
                counts=self.counts,
                overwrite=self.overwrite,
                advance=advance,
                **given,
            )
        if self.json:
            print_json({**msgspec.to_builtins(report.training), "notes": report.remarks})
            return
        print_facts([*_facts(report), ("time", f"{time.monotonic() - started:.1f} s")])
        print()
        print_table(*_sizes(report))


def _facts(report: TrainReport) -> Iterator[tuple[str, str]]:
    training, counts = report.training, report.training.counts
    largest = training.sizes[0]
    yield "tokenizer", f"{report.folder} ({training.options['vocabulary']['model']})"
    for remark in report.remarks:
        yield "note", remark
    if training.options["vocabulary"]["split"].startswith("sentencepiece"):
        # The library's rules: most of them also turn newlines into spaces.
        yield "note", "SentencePiece normalizes the text: runs of spaces become one, of 3 bytes"
    size = f"{size_text(counts.bytes)}, {counted(counts.occurrences, 'word')}"
    weighted = " after weighting" if _is_weighted(report) else ""
    yield "corpus", f"{size}{weighted}, {counts.words:,} of them unique"
    if counts.words_left_out:
        yield "left out", f"{counted(counts.words_left_out, 'rare word')} when counting"
    if len(counts.weights) > 1:
        yield "weights", ", ".join(f"{name} x {n}" for name, n in counts.weights.items())
    specials = ", ".join(f"{token} {i}" for token, i in list(training.special_ids.items())[:8])
    yield "special", specials or "none"
    longest = sorted({repr((token.start.strip() or token.start)[:24]) for token in largest.longest})
    yield "longest", f"{largest.longest[0].characters:,} characters; {' '.join(longest)}"
    yield "checked", "the library loads it and encodes the words of the corpus as predicted"


def _is_weighted(report: TrainReport) -> bool:
    return any(weight != 1 for weight in report.training.counts.weights.values())


def _sizes(report: TrainReport) -> tuple[list[str], list[list[str]]]:
    """The table with one line for each vocabulary."""
    tokens_of = "weighted tokens" if _is_weighted(report) else "tokens"
    header = ["vocabulary", tokens_of, "per counted word", "bytes per token", "unused", "fallback"]
    rows = []
    for entry, measured in zip(report.training.sizes, report.measured, strict=True):
        tokens, num_bytes = max(entry.tokens, 1), max(measured.bytes, 1)
        rows.append(
            [
                f"{entry.vocabulary:,}",
                f"{entry.tokens:,}",
                f"{entry.tokens / max(measured.occurrences, 1):.3f}",
                f"{num_bytes / tokens:.3f}",
                f"{entry.unused:,}",
                f"{entry.fallback_bytes / num_bytes:.4%}",
            ]
        )
    return header, rows

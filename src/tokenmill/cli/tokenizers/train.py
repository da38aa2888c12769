"""tokenmill tokenizer train"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tokenmill.cli.options import add_section, add_sections
from tokenmill.cli.parser import Parser
from tokenmill.cli.quantities import counted, size_text

if TYPE_CHECKING:
    from tokenmill.vocabulary.training.train import TrainReport

EXAMPLES = """\
examples:
  tokenmill tokenizer train data/*.jsonl.zst --out T/
  tokenmill tokenizer train data/ --vocabulary 64000 --sizes 16000,32000 --digits groups-right \\
      --special '<|im_start|>' --special '<|im_end|>' --reserve 256 --out T/
  tokenmill tokenizer train counts/ --weight th=3 --out T/
  tokenmill tokenizer train data/ --model wordpiece --vocabulary 30522 --out T/"""

COMMON = (
    *("out", "model", "split", "vocabulary", "sizes", "digits", "special", "eos", "reserve"),
    *("weight", "counts", "text_field", "workers", "overwrite"),
)


def add_arguments(parser: Parser) -> None:
    """The options of this action."""
    from tokenmill.run.recipe.checks import SECTIONS as RECIPE
    from tokenmill.run.recipe.options import NOT_FOR_COUNTS, CountRecipe
    from tokenmill.vocabulary.training.options import (
        COUNTING,
        COUNTING_SECTIONS,
        SECTIONS,
        SUMMARIES,
    )

    parser.usage = "tokenmill tokenizer train INPUT ... --out DIR [options]"
    parser.epilog = EXAMPLES
    parser.common = COMMON
    parser.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="files, folders, globs, hf:// URLs, or one folder of word counts",
    )
    parser.add_argument("--out", metavar="DIR", required=True, help="folder for the tokenizer")
    parser.add_argument(
        "--counts",
        metavar="DIR",
        help="keep the word counts in this folder, to train from them again",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a trained tokenizer, but no other folder"
    )
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")
    for section, kind in SECTIONS.items():
        add_section(parser.add_argument_group(section, SUMMARIES[section]), kind)
    add_section(
        parser.add_argument_group("counting", "how words are counted"), CountRecipe, COUNTING
    )
    add_sections(parser, {name: RECIPE[name] for name in COUNTING_SECTIONS}, NOT_FOR_COUNTS)


def run(options: argparse.Namespace) -> int:
    """Train, showing progress; returns the exit code."""
    import time

    import msgspec

    from tokenmill.cli.meter import meter
    from tokenmill.run.count import CountEvents
    from tokenmill.vocabulary.training.options import counting_values, make_train_options
    from tokenmill.vocabulary.training.train import TrainEvents, train

    values, counting = counting_values(_given(options))
    chosen = make_train_options(values)
    started = time.monotonic()
    with meter() as advance:
        report = train(
            options.inputs,
            options.out,
            chosen,
            counting=counting,
            counts_folder=options.counts,
            overwrite=options.overwrite,
            events=TrainEvents(
                CountEvents(
                    on_progress=lambda shot: advance("counting", shot.done_bytes, shot.total_bytes)
                ),
                advance,
            ),
        )
    if options.json:
        print(msgspec.json.encode(report.training).decode())
        return 0
    from tokenmill.cli.tables import print_facts, print_table

    print_facts([*_facts(report), ("time", f"{time.monotonic() - started:.1f} s")])
    print()
    print_table(*_sizes(report))
    return 0


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The options that the command line sets, from all sections."""
    from tokenmill.run.recipe.checks import SECTIONS as RECIPE
    from tokenmill.vocabulary.training.options import COUNTING, COUNTING_SECTIONS, SECTIONS

    names = [name for kind in SECTIONS.values() for name in kind.__struct_fields__]
    names += [name for each in COUNTING_SECTIONS for name in RECIPE[each].__struct_fields__]
    found = {name: getattr(options, name, None) for name in (*names, *COUNTING)}
    return {name: value for name, value in found.items() if value is not None}


def _facts(report: TrainReport) -> Iterator[tuple[str, str]]:
    training, counts = report.training, report.training.counts
    largest = training.sizes[0]
    yield "tokenizer", f"{report.folder} ({training.options['vocabulary']['model']})"
    for remark in report.remarks:
        yield "note", remark
    yield (
        "corpus",
        f"{size_text(counts.bytes)}, {counted(counts.occurrences, 'word')}, "
        f"{counts.words:,} of them unique",
    )
    if counts.words_left_out:
        yield "left out", f"{counted(counts.words_left_out, 'rare word')} when counting"
    if len(counts.weights) > 1:
        names = [name if name.isprintable() else repr(name) for name in counts.weights]
        pairs = zip(names, counts.weights.values(), strict=True)
        shown = ", ".join(f"{name} x {weight}" for name, weight in pairs)
        yield "weights", shown
    specials = ", ".join(f"{token} {i}" for token, i in list(training.special_ids.items())[:8])
    yield "special", specials or "none"
    longest = sorted({repr((token.start.strip() or token.start)[:24]) for token in largest.longest})
    yield "longest", f"{largest.longest[0].characters:,} characters; {' '.join(longest)}"
    yield "checked", "the library loads it and encodes the words of the corpus as predicted"


def _sizes(report: TrainReport) -> tuple[list[str], list[list[str]]]:
    """The table with one line for each vocabulary."""
    header = ["vocabulary", "tokens", "per word", "bytes per token", "unused", "fallback"]
    rows = []
    for entry, measured in zip(report.training.sizes, report.measured, strict=True):
        tokens, num_bytes = max(measured.tokens, 1), max(measured.bytes, 1)
        rows.append(
            [
                f"{entry.vocabulary:,}",
                f"{measured.tokens:,}",
                f"{measured.tokens / max(measured.occurrences, 1):.3f}",
                f"{num_bytes / tokens:.3f}",
                f"{measured.unused:,}",
                f"{measured.fallback_bytes / num_bytes:.4%}",
            ]
        )
    return header, rows

"""tokenmill tokenizer report"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tokenmill.cli.parser import Json, Section
from tokenmill.cli.tables import bar_lines, bar_room, print_facts, print_json, print_table
from tokenmill.cli.tokenizers.facts import WHICH, RankFile
from tokenmill.core.options import about
from tokenmill.packing.costs import SHAPES
from tokenmill.run.recipe.options import Positive, ReadOptions

if TYPE_CHECKING:
    from tokenmill.reports.tokenizers.report import Report

MAX_SHOWN_GROUPS = 60


class ReportOn(RankFile, kw_only=True):
    """Measure tokenizers, showing progress."""

    usage: ClassVar[str] = "TOKENIZER [TOKENIZER ...] --on INPUT [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill tokenizer report tokenizer.json --on corpus/
  tokenmill tokenizer report mine/ gpt2 --on data/*.jsonl.zst --by language --model llama-3-8b
  tokenmill tokenizer report mine/ gpt2 --on flores/*.jsonl --by language --base en --csv"""
    sections: ClassVar[tuple[Section, ...]] = (
        Section("read", ReadOptions, only=("text_field", "id_field", "format", "separator")),
    )

    tokenizer: Annotated[list[str], about(WHICH, positional="TOKENIZER")]
    on: Annotated[
        list[str],
        about(
            "a dataset, for its sources; files, folders, globs; or a folder of word counts",
            example="data/",
            metavar="INPUT",
            nargs="+",
        ),
    ]
    by: Annotated[
        str | None,
        about(
            "group documents by a field (language, domain, ...; NAME? if only some "
            "records have it), or by `input`",
            metavar="COLUMN",
        ),
    ] = None
    base: Annotated[
        str | None,
        about(
            "for parallel text: show each group's premium over this one, and the Gini coefficient",
            metavar="GROUP",
        ),
    ] = None
    words: Annotated[
        str,
        about("how words are split: uax29, whitespace, characters", metavar="RULE"),
    ] = "uax29"
    sequence_length: Annotated[
        tuple[int, ...],
        about("row lengths in tokens", unit="tokens", metavar="N,N"),
    ] = (2048, 8192)
    model: Annotated[
        str | None,
        about("a published model, to show FLOPs: gpt2, llama-3-8b, ...", known=SHAPES),
    ] = None
    workers: Annotated[
        Positive | None,
        about("worker processes (default: 80% of the physical cores; one for small inputs)"),
    ] = None
    json: Json = False
    csv: Annotated[bool, about("the result as CSV, one line per figure")] = False

    def run(self) -> None:
        from tokenmill.api.tokenizers import report_tokenizers
        from tokenmill.cli.meter import meter

        read: Any = self.given.get("read", {})
        with meter() as advance:
            report = report_tokenizers(
                self.tokenizer,
                self.on,
                by=self.by,
                base=self.base,
                words=self.words,  # type: ignore[arg-type]
                sequence_lengths=sorted({*self.sequence_length}),
                model=self.model,
                encoding=self.rank_encoding,
                workers=self.workers,
                advance=advance,
                **read,
            )
        if self.json:
            print_json(report)
        elif self.csv:
            from tokenmill.reports.tokenizers.report import csv_lines

            print(csv_lines(report), end="")
        else:
            _print(report)


def _print(report: Report) -> None:
    """Print a table of figures, a table of groups, and examples."""
    from tokenmill.reports.tokenizers import tables
    from tokenmill.reports.tokenizers.report import short_names

    names = short_names([found.tokenizer for found in report.tokenizers])
    print_facts(tables.subject_facts(report, names))
    groups = tables.group_tables(report, names, MAX_SHOWN_GROUPS) if report.by is not None else ()
    for table in (*tables.figure_tables(report, names), *groups):
        print()
        print_table(*table)
    if bar_room(0):
        print("\nbytes per token\n")
        print("\n".join(bar_lines(list(_bars(report, names)))))
    print()
    _print_examples(report, names)
    print()
    print_facts([("note", note) for note in tables.notes(report)])
    hidden = len(report.tokenizers[0].groups) - MAX_SHOWN_GROUPS
    if hidden > 0:
        print_facts([("note", f"{hidden:,} more groups with --json and --csv")])


def _bars(report: Report, names: Sequence[str]) -> Iterator[tuple[str, float, str]]:
    """Bytes per token of each tokenizer, group by group if there are any."""
    from tokenmill.reports.tokenizers.tables import ratio

    first = report.tokenizers[0]
    groups = list(first.groups.items())[: MAX_SHOWN_GROUPS // len(names)]
    for group, _ in groups or [("", first.texts)]:
        for name, found in zip(names, report.tokenizers, strict=True):
            figures = found.groups[group] if groups else found.texts
            label = f"{group} {name}" if groups else name
            yield label, figures.bytes_per_token.value or 0.0, ratio(figures.bytes_per_token)


def _print_examples(report: Report, names: Sequence[str]) -> None:
    for example, text in report.examples.items():
        print_facts([(example, repr(text))])
        cuts = zip(names, report.tokenizers, strict=True)
        print_facts([(f"  {name}", _cut(found.examples[example])) for name, found in cuts])


def _cut(tokens: Sequence[str]) -> str:
    return f"{'|'.join(tokens)}  ({len(tokens)})"

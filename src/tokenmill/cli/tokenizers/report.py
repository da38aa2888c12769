"""tokenmill tokenizer report"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from tokenmill.cli.parser import Json, Section
from tokenmill.cli.tokenizers.facts import WHICH, RankFile
from tokenmill.core.errors import UserError
from tokenmill.core.options import about
from tokenmill.run.recipe.options import Positive, ReadOptions


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
        about("a published model, to show FLOPs: gpt2, llama-3-8b, ..."),
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

        if self.json and self.csv:
            raise UserError("--json and --csv cannot be combined")
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
            from tokenmill.cli.tables import print_json

            print_json(report)
        elif self.csv:
            from tokenmill.report.tokenizers.report import csv_lines

            print(csv_lines(report), end="")
        else:
            from tokenmill.cli.tokenizers.report_display import print_report

            print_report(report)

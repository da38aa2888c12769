"""tokenmill tokenizer report"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tokenmill.cli.parser import Json, Section
from tokenmill.cli.tables import bar_lines, bar_room, print_facts, print_json, print_table
from tokenmill.cli.tokenizers.facts import WHICH, RankFile
from tokenmill.core.options import about
from tokenmill.core.values import size_text
from tokenmill.run.recipe.options import Positive, ReadOptions

if TYPE_CHECKING:
    from tokenmill.reports.tokenizers.figures import Ratio, TextFigures
    from tokenmill.reports.tokenizers.report import Report, TokenizerReport

Cell = Callable[["TokenizerReport"], str]
MAX_SHOWN_GROUPS = 60
INTERVALS = "in brackets: 95 percent intervals, from 200 Poisson samples of the documents"


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
    from tokenmill.reports.tokenizers.report import short_names

    names = short_names([found.tokenizer for found in report.tokenizers])
    print_facts(_subject_of(report, names))
    for title, rows in _sections(report):
        print()
        print_table([title, *names], [[name, *map(cell, report.tokenizers)] for name, cell in rows])
    if report.by is not None:
        print()
        _print_groups(report, names)
    if bar_room(0):
        print("\nbytes per token\n")
        print("\n".join(bar_lines(list(_bars(report, names)))))
    print()
    _print_examples(report, names)
    print()
    print_facts([("note", note) for note in _notes(report)])


def _subject_of(report: Report, names: Sequence[str]) -> list[tuple[str, str]]:
    texts = report.tokenizers[0].texts
    facts = [
        (short, f"{found.tokenizer} ({found.kind})")
        for short, found in zip(names, report.tokenizers, strict=True)
    ]
    facts.append(("text", report.corpus))
    size = f"{size_text(texts.bytes)}, {texts.characters:,} characters"
    words = f"{texts.words:,} words ({report.words})"
    if texts.documents:
        facts.append(("documents", f"{texts.documents:,} with {size}, {words}"))
    else:
        facts.append(("counts", f"{words}, {size}"))
    return facts


def _sections(report: Report) -> list[tuple[str, list[tuple[str, Cell]]]]:
    sections = [("length", _length_rows()), ("use of the vocabulary", _use_rows())]
    for number, rows in enumerate(report.tokenizers[0].rows):
        title = f"rows of {rows.sequence_length:,}"
        sections.append((title, _training_rows(number, report.model)))
    sections.append(("vocabulary", _vocabulary_rows()))
    return sections


def _length_rows() -> list[tuple[str, Cell]]:
    return [
        ("tokens", lambda t: f"{t.texts.tokens:,}"),
        ("bytes per token", lambda t: _ratio(t.texts.bytes_per_token)),
        ("characters per token", lambda t: _ratio(t.texts.characters_per_token)),
        ("words per token", lambda t: _ratio(t.texts.words_per_token)),
        ("tokens per word (fertility)", lambda t: _ratio(t.texts.fertility)),
        ("continued words", lambda t: _share(t.texts.continued_words)),
        ("words in one token (STRR)", lambda t: _share(t.texts.single_token_words)),
        ("tokens by the first's (NSL)", lambda t: _ratio(t.texts.sequence_length_ratio)),
        ("bits per byte / loss in nats", lambda t: _number(t.texts.bits_per_byte_factor)),
        ("unknown tokens", lambda t: _share(t.texts.unknown_tokens)),
        ("parts of characters", lambda t: _share(t.texts.part_tokens)),
        ("documents spelled exactly", lambda t: _share(t.texts.spelled_documents)),
    ]


def _use_rows() -> list[tuple[str, Cell]]:
    return [
        ("vocabulary", lambda t: f"{t.tokens.vocabulary_size:,}"),
        ("used", lambda t: f"{t.tokens.types_used:,} ({t.tokens.utilisation:.1%})"),
        ("never used", lambda t: f"{t.tokens.types_unused:,}"),
        ("types by tokens (TTR)", lambda t: _number(t.tokens.type_token_ratio)),
        ("Shannon entropy, bits", lambda t: f"{t.tokens.shannon_entropy:.4f}"),
        ("  efficiency, of used", lambda t: f"{t.tokens.shannon_efficiency:.4f}"),
        ("  efficiency, of all", lambda t: f"{t.tokens.shannon_efficiency_of_vocabulary:.4f}"),
        ("Renyi entropy, bits", lambda t: f"{t.tokens.renyi_entropy:.4f}"),
        ("  efficiency, of used", lambda t: f"{t.tokens.renyi_efficiency:.4f}"),
        ("  efficiency, of all", lambda t: f"{t.tokens.renyi_efficiency_of_vocabulary:.4f}"),
        ("percentile frequency", lambda t: f"{t.tokens.percentile_frequency:.4f}"),
        ("share of 10 most frequent", lambda t: _share_at(t, 10)),
        ("share of 1,000", lambda t: _share_at(t, 1_000)),
    ]


def _training_rows(number: int, model: str | None) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [
        ("tokens with prefix and EOS", lambda t: f"{t.rows[number].tokens:,}"),
        ("rows, best-fit", lambda t: f"{t.rows[number].rows:,}"),
        ("fill", lambda t: f"{t.rows[number].fill:.2%}"),
        ("rows, joined and cut", lambda t: f"{t.rows[number].concatenated_rows:,}"),
        ("attention inside documents", lambda t: f"{t.rows[number].attention:.1%}"),
    ]
    if model is not None:
        rows.append((f"FLOPs, {model}, once", lambda t: f"{t.rows[number].flops or 0:.3e}"))
    return rows


def _vocabulary_rows() -> list[tuple[str, Cell]]:
    def fact(name: str) -> Cell:
        return lambda t: "-" if t.vocabulary is None else f"{getattr(t.vocabulary, name):,}"

    names = ("special", "added", "single_bytes", "fragments", "unreachable", "long")
    rows = [(name.replace("_", " "), fact(name)) for name in names]
    rows.append(
        ("in common with the first", lambda t: f"{t.overlap.common:,}" if t.overlap else "-")
    )
    return rows


def _print_groups(report: Report, names: Sequence[str]) -> None:
    """Print the size of each group, and for each metric a table of groups and tokenizers."""
    groups = dict(list(report.tokenizers[0].groups.items())[:MAX_SHOWN_GROUPS])
    sizes = [
        [group, f"{found.documents:,}", f"{found.bytes:,}", f"{found.words:,}"]
        for group, found in groups.items()
    ]
    print_table([report.by or "", "documents", "bytes", "words"], sizes)
    metrics: dict[str, Callable[[TextFigures], str]] = {
        "tokens": lambda figures: f"{figures.tokens:,}",
        "tokens per word": lambda figures: _ratio(figures.fertility),
        "bytes per token": lambda figures: _ratio(figures.bytes_per_token),
    }
    if report.base is not None:
        metrics[f"premium over {report.base}"] = lambda figures: _ratio(figures.premium)
    for metric, shown in metrics.items():
        rows = [
            [group, *(shown(found.groups[group]) for found in report.tokenizers)]
            for group in groups
        ]
        print()
        print_table([metric, *names], rows)
    unequal = [found.inequality for found in report.tokenizers if found.inequality is not None]
    if unequal:
        rows = [["worst", *(str(each.worst) for each in unequal)]]
        if any(each.gini for each in unequal):
            rows.insert(0, ["Gini", *(_ratio(each.gini) for each in unequal)])
        print()
        print_table(["inequality", *names], rows)


def _bars(report: Report, names: Sequence[str]) -> Iterator[tuple[str, float, str]]:
    """Bytes per token of each tokenizer, group by group if there are any."""
    first = report.tokenizers[0]
    groups = list(first.groups.items())[: MAX_SHOWN_GROUPS // len(names)]
    for group, _ in groups or [("", first.texts)]:
        for name, found in zip(names, report.tokenizers, strict=True):
            figures = found.groups[group] if groups else found.texts
            label = f"{group} {name}" if groups else name
            yield label, figures.bytes_per_token.value or 0.0, _ratio(figures.bytes_per_token)


def _print_examples(report: Report, names: Sequence[str]) -> None:
    for example, text in report.examples.items():
        print_facts([(example, repr(text))])
        cuts = zip(names, report.tokenizers, strict=True)
        print_facts([(f"  {name}", _cut(found.examples[example])) for name, found in cuts])


def _cut(tokens: Sequence[str]) -> str:
    return f"{'|'.join(tokens)}  ({len(tokens)})"


def _notes(report: Report) -> list[str]:
    notes = [
        *report.notes,
        *([INTERVALS] if report.tokenizers[0].texts.documents else []),
        "continued words: taken with their space, as the tokenizer meets them",
        "figures: docs/reference/tokenizer-training.md defines each, with its name in --csv",
        "Renyi: of order 2.5; it can rise without any gain in training, so use other figures, too",
    ]
    if report.num_rejected:
        notes.append(f"{report.num_rejected:,} records could not be read and were left out")
    for found in report.tokenizers:
        aligned = found.texts.aligned_words.value
        if aligned is not None and aligned < 1:
            notes.append(
                f"{found.tokenizer}: continued words were counted in {aligned:.1%} of all words"
            )
    hidden = len(report.tokenizers[0].groups) - MAX_SHOWN_GROUPS
    if hidden > 0:
        notes.append(f"{hidden:,} more groups with --json and --csv")
    return notes


def _ratio(found: Ratio | None, fine: str = ".4f", coarse: str = ".3f") -> str:
    if found is None or found.value is None:
        return "-"
    if found.low is None or found.high is None or found.low == found.high:
        return f"{found.value:{fine}}"
    return f"{found.value:{fine}} [{found.low:{coarse}}, {found.high:{coarse}}]"


def _share(found: Ratio) -> str:
    return _ratio(found, ".2%", ".1%")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"


def _share_at(found: TokenizerReport, rank: int) -> str:
    return next((f"{p.share:.1%}" for p in found.tokens.rank_frequency if p.rank == rank), "-")

"""tokenmill inspect"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.parser import Command, Decoder, Json
from tokenmill.cli.tables import fact_lines, length_lines, print_json, print_table, with_bar
from tokenmill.cli.terminal import fitted, painted, use_colour
from tokenmill.core.errors import UserError, one_line
from tokenmill.core.options import about
from tokenmill.core.values import counted, safe_text

if TYPE_CHECKING:
    from tokenmill.reports.sequence import SequenceView
    from tokenmill.store.dataset import Dataset
    from tokenmill.store.manifest import SourceEntry

MAX_SHOWN_SOURCES = 20
MAX_SHOWN_TOKENS = 500
COLOURS = (36, 33, 32, 35)
DIM, REVERSE = 2, 7
LEGEND = "⟦end or beginning of a document⟧  ⟪no loss⟫"


class Inspect(Command, kw_only=True):
    """Print a dataset, a document, a plan or a sequence."""

    usage: ClassVar[str] = "DIR [--document N | --plan PLAN [--sequence N]] [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill inspect corpus/
  tokenmill inspect corpus/ --document 17
  tokenmill inspect corpus/ --plan best-fit-4096
  tokenmill inspect corpus/ --plan best-fit-4096 --sequence 3"""

    dataset: Annotated[str, about("folder of the dataset", positional="DIR")]
    document: Annotated[int | None, about("show document N, counted from 0")] = None
    plan: Annotated[
        str | None,
        about("show a plan, by its name or folder", metavar="PLAN"),
    ] = None
    sequence: Annotated[int | None, about("show sequence N of the plan, from 0")] = None
    all: Annotated[
        bool, about(f"show the whole document, not only its first {MAX_SHOWN_TOKENS} tokens")
    ] = False
    tokenizer: Decoder = None
    json: Json = False

    def run(self) -> None:
        if self.sequence is not None and self.plan is None:
            raise UserError("--sequence needs --plan", hint="add --plan with the name of the plan")
        if self.document is not None and self.plan is not None:
            raise UserError("--document and --plan cannot be combined", hint="give one of them")
        from tokenmill.store.temporary import dataset_at

        with dataset_at(self.dataset) as dataset:
            if self.plan is not None and self.sequence is not None:
                self._show_sequence(dataset, self.plan, self.sequence)
            elif self.plan is not None:
                self._show_plan(dataset, self.plan)
            elif self.document is not None:
                self._show_document(dataset, self.document)
            else:
                self._show_dataset(dataset)

    def _show_document(self, dataset: Dataset, number: int) -> None:
        from tokenmill.reports.inspect import view_document

        most = None if self.all or self.json else MAX_SHOWN_TOKENS
        view = view_document(dataset, number, self.tokenizer, max_tokens=most)
        if self.json:
            print_json(view)
            return
        where = f"document {view.number} in {view.shard}: {counted(view.num_tokens, 'token')}"
        print(fitted(f"{where}; {one_line(view.described)}\n"))
        style = 0 if use_colour() else None
        marked = [_marked(each.text, each.boundary, each.has_loss, style) for each in view.pieces]
        print("".join(marked))
        shown = sum(len(piece.ids) for piece in view.pieces)
        if more := view.num_tokens - shown:
            print(f"\n... {counted(more, 'more token')}: add --all to see the whole document")
        if not all(piece.has_loss for piece in view.pieces):
            print("\n⟪no loss⟫")

    def _show_plan(self, dataset: Dataset, name: str) -> None:
        from tokenmill.cli.plan_display import plan_lines, plan_values, sequence_pictures
        from tokenmill.packing.planning import PlanReport, figures_of, place_of
        from tokenmill.store.plan import open_plan

        plan = open_plan(dataset, name)
        report = PlanReport(plan, figures_of(plan), already_there=True)
        place = "" if dataset.origin is None else place_of(plan, dataset)
        if self.json:
            print_json(plan_values(report, place))
            return
        print("\n".join(plan_lines(report, place, verbose=True)))
        if pictures := sequence_pictures(plan):
            print("", *pictures, sep="\n")

    def _show_sequence(self, dataset: Dataset, name: str, number: int) -> None:
        from tokenmill.reports.sequence import view_sequence
        from tokenmill.store.plan import open_plan

        plan = open_plan(dataset, name)
        view = view_sequence(dataset, plan, number, self.tokenizer)
        if self.json:
            print_json(view)
            return
        print("\n".join(sequence_lines(view, colour=use_colour())))

    def _show_dataset(self, dataset: Dataset) -> None:
        import msgspec

        from tokenmill.reports.contents import count_subsets, described, run_if_kept, view_facts
        from tokenmill.reports.inspect import edge_views
        from tokenmill.reports.samples import SMALL, sampled_lengths

        manifest, subsets = dataset.manifest, count_subsets(dataset)
        run, view = run_if_kept(dataset), view_facts(dataset)
        if self.json:
            summary = msgspec.to_builtins(manifest)
            del summary["shards"], summary["rejected"]
            audit = msgspec.to_builtins(run.audit) if run and run.audit else None
            shards = len(manifest.shards)
            summary |= {"num_shards": shards, "subsets": subsets, "audit": audit}
            print_json({**summary, "view": view} if view else summary)
            return
        print("\n".join([*fact_lines(described(dataset, run, subsets), 11), ""]))
        shown = manifest.sources[:MAX_SHOWN_SOURCES]
        header, rows = ["source", "documents", "tokens", "rejected"], [*map(_counts, shown)]
        widths = [max(map(len, column)) + 2 for column in zip(header, *rows, strict=True)]
        for row, source in zip(rows, shown, strict=True):
            share = source.counts.tokens / max(manifest.totals.tokens, 1)
            row.append(with_bar(f"{share:6.1%}", share, sum(widths)))
        print_table([*header, "share"], rows)
        if len(manifest.sources) > MAX_SHOWN_SOURCES:
            print(f"and {len(manifest.sources) - MAX_SHOWN_SOURCES} more")
        if dataset.num_documents:
            found = sampled_lengths(dataset, *SMALL)
            sample = "" if found.is_whole else f", from {found.documents:,} documents"
            print("", *length_lines(found.counts.bins(), sample), sep="\n")
        for number, first, last in edge_views(dataset, self.tokenizer):
            print(f"\ndocument {number}")
            print("\n".join(fact_lines((("begins", first), ("ends", last)), 11)))


def _counts(source: SourceEntry) -> list[str]:
    """The row of a source in the table."""
    counts = source.counts
    note = " (left out: damaged)" if source.quarantined else ""
    numbers = (counts.documents, counts.tokens, counts.num_rejected)
    return [safe_text(source.name + note), *(f"{number:,}" for number in numbers)]


def _marked(text: str, is_boundary: bool, has_loss: bool, style: int | None) -> str:
    """Text in brackets if it is a boundary or has no loss; in colour, also reverse and dimmed."""
    text = f"⟦{safe_text(text)}⟧" if is_boundary else safe_text(text)
    text = text if has_loss else f"⟪{text}⟫"
    if style is None:
        return text
    return painted(text, style, *[REVERSE] * is_boundary, *[DIM] * (not has_loss))


def sequence_lines(view: SequenceView, *, colour: bool) -> Iterator[str]:
    """The lines of a sequence, document by document.

    Tokens at document boundaries and tokens without loss are put in brackets. In colour, they are
    also shown in reverse video and dimmed.
    """
    for number, segment in enumerate(view.segments):
        style = COLOURS[number % len(COLOURS)] if colour else None
        head = fitted(f"== {one_line(segment.heading)}")
        yield painted(head, style, REVERSE) if style else head
        parts = [(run.text, run.kind != "text", run.has_loss) for run in segment.runs]
        yield "".join(_marked(*part, style) for part in parts)
    yield fitted(f"-- {view.padding:,} of {view.row_length:,} tokens are padding   {LEGEND}")

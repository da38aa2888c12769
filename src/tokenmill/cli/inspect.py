"""tokenmill inspect"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.inspect_state import MAX_SHOWN_TOKENS, OfState
from tokenmill.cli.sequence_lines import marked, sequence_lines
from tokenmill.cli.tables import fact_lines, length_lines, print_json, print_table, with_bar
from tokenmill.cli.terminal import fitted, use_colour
from tokenmill.core.errors import UserError, one_line
from tokenmill.core.options import about
from tokenmill.core.values import counted, safe_text
from tokenmill.store.cloud.names import is_remote

if TYPE_CHECKING:
    from tokenmill.store.dataset import Dataset
    from tokenmill.store.manifest import SourceEntry

MAX_SHOWN_SOURCES = 20


class Inspect(OfState, kw_only=True):
    """Print a dataset, a document, a plan, a sequence, or a step of a training run."""

    usage: ClassVar[str] = (
        "DIR [--document N | --plan PLAN [--sequence N]] | STATE.json [--step N] [options]"
    )
    examples: ClassVar[str] = """\
examples:
  tokenmill inspect corpus/
  tokenmill inspect corpus/ --document 17
  tokenmill inspect corpus/ --plan best-fit-4096
  tokenmill inspect corpus/ --plan best-fit-4096 --sequence 3
  tokenmill inspect state.json --step 1200
  tokenmill inspect state.json --losses run.jsonl --first-step 1"""

    document: Annotated[int | None, about("show document N, counted from 0")] = None
    plan: Annotated[
        str | None,
        about("show a plan, by its name or folder", metavar="PLAN"),
    ] = None
    sequence: Annotated[int | None, about("show sequence N of the plan, from 0")] = None

    def run(self) -> None:
        if self.sequence is not None and self.plan is None:
            raise UserError("--sequence needs --plan", hint="add --plan with the name of the plan")
        if self.document is not None and self.plan is not None:
            raise UserError("--document and --plan cannot be combined", hint="give one of them")
        from tokenmill.store.temporary import dataset_at

        if not is_remote(self.path) and Path(self.path).is_file():
            if self.document is not None or self.plan is not None:
                raise UserError("--document and --plan need a dataset", where=self.path)
            self.show_state()
            return
        self.refuse_options_of_states()
        with dataset_at(self.path) as dataset:
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
        parts = [marked(each.text, each.boundary, each.has_loss, style) for each in view.pieces]
        print("".join(parts))
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

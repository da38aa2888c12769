"""tokenmill inspect"""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from tokenmill.cli.options import add_tokenizer_argument
from tokenmill.cli.parser import Parser, whole_number
from tokenmill.cli.quantities import counted, unknown_facts
from tokenmill.cli.tables import fact_lines
from tokenmill.cli.terminal import BOLD, painted, safe_text, use_colour
from tokenmill.core.errors import UserError

if TYPE_CHECKING:
    from tokenmill.store.dataset import Dataset

EXAMPLES = """\
examples:
  tokenmill inspect corpus/
  tokenmill inspect corpus/ --document 17
  tokenmill inspect corpus/ --plan best-fit-4096
  tokenmill inspect corpus/ --plan best-fit-4096 --sequence 3"""

MAX_SHOWN_SOURCES = 20


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill inspect DIR [--document N | --plan PLAN [--sequence N]] [options]"
    parser.epilog = EXAMPLES
    parser.add_argument("dataset", metavar="DIR", help="folder of the dataset")
    parser.add_argument(
        "--document", type=whole_number, metavar="N", help="show document N, counted from 0"
    )
    parser.add_argument("--plan", metavar="PLAN", help="show a plan, by its name or folder")
    parser.add_argument(
        "--sequence", type=whole_number, metavar="N", help="show sequence N of the plan, from 0"
    )
    add_tokenizer_argument(parser)
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout")


def run(options: argparse.Namespace) -> int:
    """Print a dataset, a document, a plan or a sequence; returns the exit code."""
    if options.sequence is not None and options.plan is None:
        raise UserError("--sequence needs --plan", hint="add --plan with the name of the plan")
    if options.document is not None and options.plan is not None:
        raise UserError("--document and --plan cannot be combined", hint="give one of them")
    from tokenmill.store.temporary import dataset_at

    with dataset_at(options.dataset) as dataset:
        if options.sequence is not None:
            _show_sequence(dataset, options)
        elif options.plan is not None:
            _show_plan(dataset, options)
        elif options.document is not None:
            _show_document(dataset, options)
        else:
            _show_dataset(dataset, options)
    return 0


def _show_document(dataset: Dataset, options: argparse.Namespace) -> None:
    from tokenmill.report.inspect import view_document

    view = view_document(dataset, options.document, options.tokenizer)
    if options.json:
        _print_json(dataclasses.asdict(view))
        return
    facts = {name: value for name, value in view.facts.items() if value is not None}
    described = ", ".join(f"{name} {value}" for name, value in facts.items())
    where = f"document {view.number} in {view.shard}: {counted(view.num_tokens, 'token')}"
    print(f"{where}; {safe_text(described)}\n")
    for piece in view.pieces:
        print(_marked(piece.text) if piece.boundary else safe_text(piece.text), end="")
    print()


def _show_plan(dataset: Dataset, options: argparse.Namespace) -> None:
    from tokenmill.cli.plan_display import plan_lines, plan_values, sequence_pictures
    from tokenmill.pack.planning import PlanReport, figures_of, place_of
    from tokenmill.store.plan import open_plan

    plan = open_plan(dataset, options.plan)
    report = PlanReport(plan, figures_of(plan), already_there=True)
    place = "" if dataset.origin is None else place_of(plan, dataset)
    if options.json:
        _print_json(plan_values(report, place))
        return
    print("\n".join([*plan_lines(report, place), "", *sequence_pictures(plan)]))


def _show_sequence(dataset: Dataset, options: argparse.Namespace) -> None:
    from tokenmill.cli.sequence_display import sequence_lines
    from tokenmill.report.sequence import view_sequence
    from tokenmill.store.plan import open_plan

    plan = open_plan(dataset, options.plan)
    view = view_sequence(dataset, plan, options.sequence, options.tokenizer)
    if options.json:
        _print_json(dataclasses.asdict(view))
        return
    print("\n".join(sequence_lines(view, colour=use_colour())))


def _show_dataset(dataset: Dataset, options: argparse.Namespace) -> None:
    import msgspec

    from tokenmill.cli.subsets import subset_facts
    from tokenmill.cli.summary import ids_text
    from tokenmill.report.contents import count_subsets, run_if_kept
    from tokenmill.report.inspect import edge_views

    manifest, subsets = dataset.manifest, count_subsets(dataset)
    run = run_if_kept(dataset)
    if options.json:
        summary = msgspec.to_builtins(manifest)
        del summary["shards"], summary["rejected"]
        audit = msgspec.to_builtins(run.audit) if run and run.audit else None
        shards = len(manifest.shards)
        _print_json({**summary, "num_shards": shards, "subsets": subsets, "audit": audit})
        return
    totals, tokenizer = manifest.totals, manifest.tokenizer
    rejected = ", ".join(f"{reason} {n:,}" for reason, n in totals.rejected.items()) or "none"
    facts = {
        "dataset": f"{dataset.location} (id {manifest.dataset_id}, "
        f"format {manifest.format_version})",
        "documents": f"{totals.documents:,} in {counted(len(dataset.shards), 'shard')}",
        "tokens": f"{totals.tokens:,} as {manifest.token_dtype}, "
        f"{totals.tokens / max(totals.documents, 1):,.0f} per document",
        "records": f"{totals.records:,}: {totals.empty:,} empty, rejected: {rejected}",
        **dict(unknown_facts(totals.unknown_tokens, totals.tokens)),
        "tokenizer": f"{tokenizer.kind}, largest id {tokenizer.largest_id}, "
        f"begins with {tokenizer.prefix_ids or 'nothing'}, ends with {tokenizer.eos_id}",
    }
    if tokenizer.fingerprint:
        facts["fingerprint"] = safe_text(tokenizer.fingerprint)
    if run is not None:
        facts["encoded by"] = f"{safe_text(run.engine)}, {ids_text(run)}"
    lines = [*facts.items(), *subset_facts(subsets)]
    print("\n".join(fact_lines(lines, 11)), "\n")
    header = f"{'documents':>12} {'tokens':>15} {'rejected':>9}  source"
    print(painted(header, BOLD) if use_colour() else header)
    for source in manifest.sources[:MAX_SHOWN_SOURCES]:
        counts = source.counts
        note = "  (left out: damaged)" if source.quarantined else ""
        numbers = f"{counts.documents:>12,} {counts.tokens:>15,} {counts.num_rejected:>9,}"
        print(f"{numbers}  {safe_text(source.name)}{note}")
    if len(manifest.sources) > MAX_SHOWN_SOURCES:
        print(f"{'':>38}  and {len(manifest.sources) - MAX_SHOWN_SOURCES} more")
    for number, first, last in edge_views(dataset, options.tokenizer):
        print(
            f"\ndocument {number} begins  {_one_line(first)}\n{'':>10}and ends  {_one_line(last)}"
        )


def _print_json(value: dict[str, object]) -> None:
    import msgspec

    print(msgspec.json.encode(value).decode())


def _marked(text: str) -> str:
    """A boundary token, in reverse video or in brackets."""
    return f"\x1b[7m{safe_text(text)}\x1b[0m" if use_colour() else f"⟦{safe_text(text)}⟧"


def _one_line(text: str) -> str:
    return safe_text(text).replace("\n", "⏎").replace("\t", "⇥")

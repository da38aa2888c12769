"""The page of a dataset: what it holds, where it comes from, how it packs, what a batch is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import PurePath

from tokenmill.core.html import (
    Html,
    about,
    contents,
    element,
    facts,
    listed,
    section,
    table,
    text,
)
from tokenmill.core.tables import Cell, Fact, number, percent, size, table_of
from tokenmill.core.values import counted, duration_text, rounded, size_text
from tokenmill.reports.overview import Overview, RejectedRecord, VocabularyUse
from tokenmill.reports.page import charts
from tokenmill.reports.page.charts import Axes
from tokenmill.reports.page.lengths import length_sections
from tokenmill.reports.page.plans import plans_section, strategies_section
from tokenmill.reports.page.texts import batch_section, documents_section
from tokenmill.store.manifest import SourceEntry

CHARTED_SOURCES = 15


def dataset_page(found: Overview) -> list[Html]:
    """The parts of the page of a dataset."""
    sections = list(_sections(found))
    return [*_head(found), contents(sections), *sections]


def _sections(found: Overview) -> Iterator[Html]:
    if found.batch is not None and found.batch.is_asked:
        yield batch_section(found.batch, found.spelled)
    yield section("Summary", facts([*found.facts, *_run_facts(found)]))
    yield _sources(found)
    yield _rejected(found)
    yield from length_sections(found.lengths, found.length_bins)
    if found.comparison is not None:
        yield strategies_section(found.comparison)
    if found.plans:
        yield plans_section(found.plans)
    if found.batch is not None and not found.batch.is_asked:
        yield batch_section(found.batch, found.spelled)
    if found.documents:
        yield documents_section(found.documents, found.spelled)
    yield _vocabulary(found.vocabulary, found)
    lead = "Documents, rows and rejected records on this page are examples. All figures are exact"
    end = ", except these:" if found.notes else "."
    yield section("What was sampled", about(lead + end), listed(found.notes))


def _head(found: Overview) -> Iterator[Html]:
    yield text("h1", PurePath(found.location).name or found.location)
    totals = found.manifest.totals
    tiles = {
        "documents": f"{totals.documents:,}",
        "tokens": rounded(totals.tokens) if totals.tokens > 1e12 else f"{totals.tokens:,}",
        "text": size_text(totals.document_bytes),
        "bytes per token": f"{totals.document_bytes / max(totals.tokens, 1):.2f}",
        "rejected records": f"{totals.num_rejected:,}",
        "sources": f"{found.num_sources:,}",
        "plans": f"{len(found.plans):,}",
    }
    shown = [
        element("div", text("strong", value), text("span", name)) for name, value in tiles.items()
    ]
    yield element("div", *shown, class_="tiles")


def _run_facts(found: Overview) -> Iterator[Fact]:
    if (run := found.run) is None:
        return
    attempts = counted(len(run.attempts), "attempt")
    wall = duration_text(run.seconds.get("wall", 0.0))
    started = "".join(f"{attempt.started} " for attempt in run.attempts[:1])
    yield "built", f"{started}on {run.host}, in {attempts}, {wall}"
    yield "versions", ", ".join(f"{name} {version}" for name, version in run.versions.items())


def _sources(found: Overview) -> Html:
    tokens = max(found.manifest.totals.tokens, 1)
    columns: dict[str, Callable[[SourceEntry], Cell]] = {
        "source": _source_name,
        "documents": lambda source: number(source.counts.documents),
        "tokens": lambda source: number(source.counts.tokens),
        "share": lambda source: percent(source.counts.tokens / tokens),
        "text": lambda source: size(source.counts.document_bytes),
        "bytes per token": lambda source: number(
            source.counts.document_bytes / max(source.counts.tokens, 1)
        ),
        "empty": lambda source: number(source.counts.empty),
        "rejected": lambda source: number(source.counts.num_rejected),
        "format": lambda source: f"{source.format}, {source.compression}".removesuffix(", none"),
    }
    bars = [
        (source.name, percent(source.counts.tokens / tokens, 1))
        for source in found.manifest.sources[:CHARTED_SOURCES]
    ]
    more = found.num_sources - len(found.manifest.sources)
    without = f", without {more:,} smaller ones" if more else ""
    return section(
        "Sources",
        about(f"The files that were read, the largest first{without}."),
        charts.bars("Share of all tokens", bars, Axes("share of all tokens", xshare=True)),
        table(*table_of(columns, found.manifest.sources)),
    )


def _source_name(source: SourceEntry) -> str:
    name = f"{source.name} (left out: {source.quarantined})" if source.quarantined else source.name
    return f"{name} from {source.origin}" if source.origin else name


def _rejected(found: Overview) -> Html:
    totals = found.manifest.totals
    if not totals.rejected:
        return section("Rejected records", text("p", "No record was rejected."))
    bars = [(reason, number(totals.rejected[reason])) for reason in found.rejected]
    return section(
        "Rejected records",
        about(
            f"{totals.num_rejected:,} of {totals.records:,} records were not accepted. All of "
            "them are listed in the folder rejected of the dataset."
        ),
        charts.bars("Records by reason", bars, Axes("records")),
        *(
            part
            for reason, examples in found.rejected.items()
            for part in _reason(f"{reason}: {counted(totals.rejected[reason], 'record')}", examples)
        ),
    )


def _reason(title: str, examples: Sequence[RejectedRecord]) -> Iterator[Html]:
    yield text("h3", title)
    for record in examples:
        detail = f": {record.detail}" if record.detail else ""
        yield about(f"{record.source}, position {record.position:,}{detail}")
        yield text("pre", record.record)


def _vocabulary(use: VocabularyUse, found: Overview) -> Html:
    figures = use.figures
    points = [("", point.rank, point.count) for point in figures.rank_frequency]
    axes = Axes("rank of the token", "occurrences", xlog=True, ylog=True)
    frequent = [
        (_spelling(token, found), number(token), number(count), percent(count / use.tokens))
        for token, count in use.frequent
    ]
    used = f"{figures.types_used:,} of {figures.vocabulary_size:,} ids, {figures.utilisation:.1%}"
    return section(
        "Vocabulary",
        about(f"Counted in {use.tokens:,} tokens."),
        facts(
            [
                ("used", used),
                ("never used", f"{figures.types_unused:,} ids"),
                ("entropy", f"{figures.shannon_entropy:.2f} bits a token"),
            ]
        ),
        charts.points("lines", "How often tokens occur", points, axes),
        table(("token", "id", "occurrences", "share"), frequent, "The most frequent tokens."),
    )


def _spelling(token: int, found: Overview) -> str:
    data = found.spelled.get(token, f"<{token}>".encode())
    return data.decode(errors="backslashreplace").replace("\n", "⏎").replace(" ", "␣")

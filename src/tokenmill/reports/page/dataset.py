"""The page of a dataset: what it holds, where it comes from, how it packs, what a batch is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from tokenmill.core.html import (
    Cell,
    Html,
    Number,
    element,
    escaped,
    facts,
    number,
    percent,
    section,
    table,
)
from tokenmill.core.values import counted, duration_text, rounded, size_text
from tokenmill.reports.overview import Overview, Rejects, VocabularyUse
from tokenmill.reports.page import charts
from tokenmill.reports.page.charts import Axes, Bar, Point
from tokenmill.reports.page.lengths import length_sections
from tokenmill.reports.page.plans import plans_section, strategies_section
from tokenmill.reports.page.texts import batch_section, documents_section
from tokenmill.store.manifest import SourceEntry

CHARTED_SOURCES = 15


def dataset_page(found: Overview) -> list[Html]:
    """The parts of the page of a dataset."""
    sections = list(_sections(found))
    return [*_head(found), _contents(found), *sections]


def _sections(found: Overview) -> Iterator[Html]:
    yield _summary(found)
    yield _sources(found)
    yield _rejected(found)
    yield from length_sections(found.lengths, found.length_bins)
    if found.comparison is not None:
        yield strategies_section(found.comparison)
    if found.plans:
        yield plans_section(found.plans)
    if found.batch is not None:
        yield batch_section(found.batch, found.spelled)
    if found.documents:
        yield documents_section(found.documents, found.spelled)
    yield _vocabulary(found.vocabulary, found)
    notes = [element("li", escaped(f"{note[0].upper()}{note[1:]}.")) for note in found.notes]
    if notes:
        yield section("What was sampled", element("ul", *notes))


def _head(found: Overview) -> Iterator[Html]:
    yield element("h1", escaped(PurePath(found.location).name or found.location))
    totals = found.totals
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
        element("div", element("strong", escaped(value)), element("span", escaped(name)))
        for name, value in tiles.items()
    ]
    yield element("div", *shown, class_="tiles")


def _contents(found: Overview) -> Html:
    """Links to the sections."""
    names = [
        ("Summary", True),
        ("Sources", True),
        ("Rejected records", True),
        ("Lengths of documents", True),
        ("Which sequence length", True),
        ("Which strategy", found.comparison is not None),
        ("Plans", bool(found.plans)),
        ("A batch", found.batch is not None),
        ("Documents", bool(found.documents)),
        ("Vocabulary", True),
        ("What was sampled", bool(found.notes)),
    ]
    links = [
        element("a", escaped(name), href=f"#{name.lower().replace(' ', '-')}")
        for name, is_there in names
        if is_there
    ]
    return element("nav", *links, aria_label="Sections")


def _summary(found: Overview) -> Html:
    totals, tokenizer = found.totals, found.tokenizer
    pairs = [
        ("place", found.location),
        ("id", f"{found.dataset_id}, format {found.format_version}"),
        *(found.view.lines() if found.view else ()),
        (
            "records",
            f"{totals.records:,} read: {totals.documents:,} documents, "
            f"{totals.empty:,} empty, {totals.num_rejected:,} rejected",
        ),
        ("shards", f"{found.num_shards:,}"),
        (
            "tokenizer",
            f"{tokenizer.kind}, ids up to {tokenizer.largest_id:,}, sha256 {tokenizer.sha256}",
        ),
        (
            "a document",
            f"begins with {tokenizer.prefix_ids or 'no token of its own'} and ends "
            f"with {tokenizer.eos_id}",
        ),
        *(
            (name, f"{each.documents:,} documents, {each.tokens:,} tokens")
            for name, each in found.subsets.items()
        ),
        *_run_facts(found),
    ]
    return section("Summary", facts(pairs))


def _run_facts(found: Overview) -> Iterator[tuple[str, str]]:
    if (run := found.run) is None:
        return
    attempts = counted(len(run.started), "attempt")
    wall = duration_text(run.seconds.get("wall", 0.0))
    yield "built", f"{', '.join(run.started[:1])} on {run.host}, in {attempts}, {wall}"
    yield "encoded by", run.engine
    checked = f"{counted(run.audited_documents, 'document')} compared with the reference: all equal"
    if run.audit is not None and run.audit.excluded_error_rate:
        checked += f"; with 95 % confidence fewer than {run.audit.excluded_error_rate:.2%} differ"
    yield "exactness", checked if run.engine != "reference" else "the reference encoded all of it"
    yield "versions", ", ".join(f"{name} {version}" for name, version in run.versions.items())


def _sources(found: Overview) -> Html:
    shown = [_source(source, found.totals.tokens) for source in found.sources]
    bars = [
        Bar(
            source.name,
            source.counts.tokens / max(found.totals.tokens, 1),
            f"{source.counts.tokens / max(found.totals.tokens, 1):.1%}",
        )
        for source in found.sources[:CHARTED_SOURCES]
    ]
    more = found.num_sources - len(found.sources)
    without = f", without {more:,} smaller ones" if more else ""
    return section(
        "Sources",
        charts.bars("Share of all tokens", bars, Axes("share of all tokens", xshare=True)),
        table(
            (
                "source",
                "documents",
                "tokens",
                "share",
                "text",
                "bytes per token",
                "tokens per document",
                "empty",
                "rejected",
                "format",
            ),
            shown,
        ),
        about=f"The files that were read, the largest first{without}.",
    )


def _source(source: SourceEntry, tokens: int) -> list[Cell]:
    counts = source.counts
    name = f"{source.name} (left out: {source.quarantined})" if source.quarantined else source.name
    packed = "" if source.compression == "none" else f", {source.compression}"
    return [
        f"{name} from {source.origin}" if source.origin else name,
        number(counts.documents),
        number(counts.tokens),
        percent(counts.tokens / max(tokens, 1)),
        Number(counts.document_bytes, size_text(counts.document_bytes)),
        number(counts.document_bytes / max(counts.tokens, 1)),
        number(counts.tokens / max(counts.documents, 1)),
        number(counts.empty),
        number(counts.num_rejected),
        f"{source.format}{packed}",
    ]


def _rejected(found: Overview) -> Html:
    if not found.rejects:
        return section("Rejected records", element("p", escaped("No record was rejected.")))
    bars = [Bar(each.reason, each.records, f"{each.records:,}") for each in found.rejects]
    return section(
        "Rejected records",
        charts.bars("Records by reason", bars, Axes("records")),
        *(part for each in found.rejects for part in _reason(each)),
        about=f"{found.totals.num_rejected:,} of {found.totals.records:,} records were not "
        "accepted. All of them are listed in the folder rejected of the dataset.",
    )


def _reason(rejects: Rejects) -> Iterator[Html]:
    yield element("h3", escaped(f"{rejects.reason}: {counted(rejects.records, 'record')}"))
    for record in rejects.examples:
        place = f"{record.source}, position {record.position:,}"
        detail = f": {record.detail}" if record.detail else ""
        yield element("p", escaped(place + detail), class_="about")
        yield element("pre", escaped(record.record))


def _vocabulary(use: VocabularyUse, found: Overview) -> Html:
    figures = use.figures
    points = [Point(point.rank, point.count) for point in figures.rank_frequency]
    axes = Axes("rank of the token", "occurrences", xlog=True, ylog=True)
    frequent = [
        (_spelling(token, found), number(token), number(count), percent(count / use.tokens))
        for token, count in use.frequent
    ]
    return section(
        "Vocabulary",
        facts(
            [
                (
                    "used",
                    f"{figures.types_used:,} of {figures.vocabulary_size:,} ids, "
                    f"{figures.utilisation:.1%}",
                ),
                ("never used", f"{figures.types_unused:,} ids"),
                ("entropy", f"{figures.shannon_entropy:.2f} bits a token"),
            ]
        ),
        charts.lines("How often tokens occur", points, axes),
        table(("token", "id", "occurrences", "share"), frequent, "The most frequent tokens."),
        about=f"Counted in {use.tokens:,} tokens.",
    )


def _spelling(token: int, found: Overview) -> str:
    data = found.spelled.get(token, f"<{token}>".encode())
    return data.decode(errors="backslashreplace").replace("\n", "⏎").replace(" ", "␣")

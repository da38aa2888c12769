"""The page of running builds, exports and loaders: its frame, and the parts that change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tokenmill.core.html import Html, about, element, escaped, facts, joined, table, text
from tokenmill.core.pictures import curve, share_bar
from tokenmill.core.tables import Number
from tokenmill.core.values import counted, duration_text, number_text, rounded, safe_text, size_text
from tokenmill.reports.status_facts import agent_table
from tokenmill.reports.watching import Watched, run_facts

MOST_AGENTS = 100


def live_page(runs: Sequence[Watched]) -> str:
    """Return the whole page as it is at the moment; `watch.js` then replaces its parts."""
    parts = fragments(runs)
    blocks = (
        element(
            "section",
            text("h2", run.name),
            element("p", Html(parts[f"state-{at}"]), id=f"state-{at}", role="status"),
            element("div", Html(parts[f"body-{at}"]), id=f"body-{at}"),
        )
        for at, run in enumerate(runs)
    )
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>{escaped(title(runs))}</title><link rel="stylesheet" href="page.css">'
        '<script src="watch.js" defer></script>'
    )
    lost = text("p", "connection lost, trying again", id="lost", role="alert", hidden="")
    static = element("noscript", text("p", "Reload the page to see changes."))
    main = element("main", text("h1", "tokenmill watch"), lost, static, *blocks)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{main}</body></html>\n'


def title(runs: Sequence[Watched]) -> str:
    """The title of the page: how far the first run is that is not complete."""
    first = next((run for run in runs if run.state != "complete"), runs[0])
    return f"{first.headline} · {safe_text(first.name)}"[:200]


def fragments(runs: Sequence[Watched]) -> dict[str, str]:
    """Return the parts that change, by the ids of their elements."""
    parts: dict[str, str] = {}
    for at, run in enumerate(runs):
        parts[f"state-{at}"] = text("span", run.state, class_=f"state {run.state}")
        parts[f"body-{at}"] = joined(_body(run))
    return parts


def _body(run: Watched) -> Iterator[Html]:
    if run.note:
        yield text("p", run.note, class_="bad")
    if run.gauges:
        rows = (
            (name, labels, Number(value, number_text(value))) for name, labels, value in run.gauges
        )
        yield table(("figure", "of", "value"), rows)
    if run.state == "waiting":
        yield about(run.headline)
    if run.status is None:
        return
    if run.status.bytes_total:
        yield share_bar(run.share, f"{run.share:.0%} done")
    if len(run.curve) > 1:
        most = f"speed over time: at most {size_text(max(run.curve), rounded)} a second"
        since = f"{duration_text(run.curve_seconds)} before"
        picture = curve(run.curve, since, "last report", most)
        yield element("figure", picture, text("figcaption", most))
    yield facts(run_facts(run))
    if agents := run.status.agents:
        more = len(agents) - MOST_AGENTS
        caption = f"Agents, and {counted(more, 'more agent')}" if more > 0 else "Agents"
        yield table(*agent_table(run.status, MOST_AGENTS), caption)

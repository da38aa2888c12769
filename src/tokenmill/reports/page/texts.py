"""Sections with text: the rows of a batch, and documents, with the borders of their tokens."""

from __future__ import annotations

import codecs
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tokenmill.core.html import Html, about, element, escaped, section, text
from tokenmill.core.pictures import attention_mask
from tokenmill.core.values import counted
from tokenmill.reports.inspect import DocumentView
from tokenmill.reports.overview import BatchView
from tokenmill.reports.page import charts
from tokenmill.reports.sequence import SequenceView

MOST_TOKENS = 300
"""Tokens of a part of a row that are shown as text."""

Spelled = Mapping[int, bytes]
"""The text of each id, in UTF-8; of some, a part of a character."""
LEGEND = (
    "Shades show the borders of tokens. Orange tokens begin or end a document. Underlined tokens "
    "have no loss: those that the dataset excludes, and in rows the first token of each part, "
    "which nothing before it predicts."
)
Shown = tuple[int, bool, bool]
"""A token: its id, whether it has loss, and whether it is no text of the document."""


def batch_section(batch: BatchView, spelled: Spelled) -> Html:
    """Rows as a loader gives them: segments, loss, padding, the mask of one, and their text."""
    at, row = max(enumerate(batch.rows), key=lambda pair: len(pair[1].segments))
    of = "" if batch.num_steps is None else f" of {batch.num_steps:,}"
    return section(
        "A batch",
        about(
            f"{len(batch.rows)} of the {batch.rows_in_batch:,} rows of a global batch, as a "
            f"loader gives them. {_batch_text(batch.rows)} The colour changes where a document "
            "ends; pale tokens have no loss, and grey is padding."
        ),
        charts.rows_of_batch(f"Step {batch.step:,}{of}, plan {batch.plan}", batch.rows),
        text("h3", f"What the tokens of row {at}, which has the most documents, attend to"),
        attention_mask(
            [(part.column, part.num_tokens) for part in row.segments],
            row.row_length,
            f"Attention of row {at} inside its documents: a triangle for each",
        ),
        about(_mask_text(row)),
        text("h3", "The rows as text"),
        about(LEGEND),
        _leaves(_row(number, each, spelled) for number, each in enumerate(batch.rows)),
    )


def _leaves(items: Iterable[Html]) -> Html:
    """Items of which a page shows one at a time."""
    return element("ol", *items, class_="leaves")


def _batch_text(rows: Sequence[SequenceView]) -> str:
    parts = sum(len(row.segments) for row in rows)
    padding = counted(sum(row.padding for row in rows), "token")
    return (
        f"They hold {parts:,} documents or parts of documents, and {padding} of padding. "
        f"Attention inside documents takes {_inside(rows):.1%} of what whole rows would take."
    )


def _inside(rows: Sequence[SequenceView]) -> float:
    """Attention inside documents as a share of that over whole rows."""
    inside = sum(part.num_tokens**2 for row in rows for part in row.segments)
    return inside / max(sum(row.row_length**2 for row in rows), 1)


def _mask_text(row: SequenceView) -> str:
    return (
        f"Keys from left to right, queries from top to bottom. Attention inside documents takes "
        f"{_inside([row]):.1%} of what it takes over the whole row."
    )


def _row(at: int, row: SequenceView, spelled: Spelled) -> Html:
    padding = counted(row.padding, "token")
    parts = [text("h3", f"Row {at}: sequence {row.sequence:,}, {padding} of padding")]
    for segment in row.segments:
        parts.append(about(segment.heading))
        tokens = [(t, run.has_loss, run.kind != "text") for run in segment.runs for t in run.ids]
        parts.append(_tokens(tokens[:MOST_TOKENS], len(tokens), spelled))
    return element("li", *parts)


def documents_section(documents: Sequence[DocumentView], spelled: Spelled) -> Html:
    """Documents to leaf through."""
    return section(
        "Documents",
        about(f"Some documents, drawn evenly, not all. {LEGEND}"),
        _leaves(_document(view, spelled) for view in documents),
    )


def _document(view: DocumentView, spelled: Spelled) -> Html:
    tokens = [(t, piece.has_loss, piece.boundary) for piece in view.pieces for t in piece.ids]
    title = f"Document {view.number:,}: {counted(view.num_tokens, 'token')}"
    tokens_ = _tokens(tokens, view.num_tokens, spelled)
    return element("li", text("h3", title), about(view.described), tokens_)


def _tokens(tokens: Sequence[Shown], total: int, spelled: Spelled) -> Html:
    """Tokens as text with their borders; each names its id.

    Tokens that hold a character only together are shown as one.
    """
    shown = []
    for (has_loss, is_edge), group in itertools.groupby(tokens, key=lambda token: token[1:]):
        classes = ["edge"] * is_edge + ["still"] * (not has_loss)
        for ids, spelling in _characters([token for token, *_ in group], spelled):
            marks = " ".join(classes + ["parts"] * (len(ids) > 1))
            visible = escaped(spelling.replace("\n", "⏎\n").replace("\t", "⇥\t"), 200)
            named = {"class_": marks} if marks else {}
            shown.append(element("i", visible, title=" ".join(map(str, ids)), **named))
    if total > len(tokens):
        shown.append(escaped(f" … {counted(total - len(tokens), 'more token')}"))
    return element("div", *shown, class_="tokens")


def _characters(tokens: Sequence[int], spelled: Spelled) -> Iterator[tuple[list[int], str]]:
    """The fewest tokens at a time that end with a whole character, and their text."""
    decode = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    ids, found = list[int](), ""
    for token in tokens:
        ids.append(token)
        found += decode.decode(spelled.get(token, f"<{token}>".encode()))
        if not decode.getstate()[0]:
            yield ids, found
            ids, found = [], ""
    if ids:
        yield ids, found + decode.decode(b"", final=True)

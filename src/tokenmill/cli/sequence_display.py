"""How `inspect` shows a sequence: one colour per document, tokens without loss dimmed."""

from __future__ import annotations

from collections.abc import Iterator

from tokenmill.cli.terminal import painted, safe_text
from tokenmill.report.sequence import Run, SegmentView, SequenceView

COLOURS = (36, 33, 32, 35)
DIM, REVERSE = 2, 7
LEGEND = "⟦end or beginning of a document⟧  ⟪no loss⟫"


def sequence_lines(view: SequenceView, *, colour: bool) -> Iterator[str]:
    """The lines of a sequence, document by document.

    In colour, tokens at document boundaries are shown in reverse video, and tokens without loss
    are dimmed. Without colour, both are put in brackets.
    """
    for number, segment in enumerate(view.segments):
        style = COLOURS[number % len(COLOURS)] if colour else None
        yield painted(_head(segment), style, REVERSE) if style else f"== {_head(segment)}"
        yield "".join(_run(run, style) for run in segment.runs)
    legend = "reverse: ends of documents; dim: no loss" if colour else LEGEND
    yield f"-- {view.padding:,} of {view.row_length:,} tokens are padding   {legend}"


def _head(segment: SegmentView) -> str:
    stop = segment.start + segment.num_tokens
    whole = segment.num_tokens == segment.document_tokens
    part = "all" if whole else f"{segment.start:,} to {stop:,}"
    origin = f"{segment.record.get('source')}, position {segment.record.get('position'):,}"
    return safe_text(
        f"document {segment.document}, {part} of {segment.document_tokens:,} tokens; {origin}"
    )


def _run(run: Run, style: int | None) -> str:
    text = safe_text(run.text)
    if style is None:
        text = text if run.kind == "text" else f"⟦{text}⟧"
        return text if run.has_loss else f"⟪{text}⟫"
    codes = [style, *([REVERSE] if run.kind != "text" else []), *([] if run.has_loss else [DIM])]
    return painted(text, *codes)

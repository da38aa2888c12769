"""Decoded tokens as lines: boundaries and tokens without loss in brackets, documents in colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenmill.cli.terminal import fitted, painted
from tokenmill.core.errors import one_line
from tokenmill.core.values import safe_text

if TYPE_CHECKING:
    from tokenmill.reports.sequence import SequenceView

COLOURS = (36, 33, 32, 35)
DIM, REVERSE = 2, 7
LEGEND = "⟦end or beginning of a document⟧  ⟪no loss⟫"


def marked(text: str, is_boundary: bool, has_loss: bool, style: int | None) -> str:
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
        yield "".join(marked(*part, style) for part in parts)
    yield fitted(f"-- {view.padding:,} of {view.row_length:,} tokens are padding   {LEGEND}")

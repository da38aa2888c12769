"""The fields to read from each record."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokenmill.core.errors import UserError
from tokenmill.core.suggestions import nearest
from tokenmill.read.rendering.chat.conversations import Conversations
from tokenmill.read.rendering.renderer import TextTemplate
from tokenmill.read.rendering.transform import Transform
from tokenmill.read.values import UnfitRecordError

if TYPE_CHECKING:
    from tokenmill.read.source import Source

AnyRendering = TextTemplate | Transform | Conversations
"""All renderings."""


MAX_RECORD_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Fields:
    """Names or dotted paths of the fields to read from each record."""

    text: str = "text"
    id: str | None = None
    keep: tuple[str, ...] = ()
    no_loss: str | None = None
    """The field with a list of [start, stop) character ranges excluded from the loss."""
    separator: str | None = None
    """For plain text: the separator between documents of one file."""
    rendering: AnyRendering | None = None
    """How texts are rendered from a record; None if the field `text` is the text."""
    optional: frozenset[str] = frozenset()
    """Fields of `keep` that may be missing from the first records or the schema of a file."""
    max_record: int = MAX_RECORD_BYTES
    """Most bytes of a record in a file that is not a table."""

    def __post_init__(self) -> None:
        if self.rendering:
            if self.no_loss:
                why = "its ranges refer to a field, but the text is built from the whole record"
                raise UserError(f"cannot use the field {self.no_loss!r} for the loss", why=why)
            return
        for name in self.extra:
            if self.text.startswith(f"{name}."):
                why = f"it contains the text field {self.text!r}"
                raise UserError(f"cannot keep the field {name!r}", why=why)

    def of(self, source: Source) -> Fields:
        """Return the fields to read from a source, which can have its own text field."""
        return replace(self, text=source.text_field) if source.text_field else self

    @property
    def texts(self) -> tuple[str, ...] | None:
        """The fields from which texts are built; None for the whole record."""
        return self.rendering.fields if self.rendering else (self.text,)

    @property
    def required_texts(self) -> tuple[str, ...]:
        """The fields of `texts` that the first records of every source must have."""
        optional = self.rendering.optional if self.rendering else frozenset()
        return tuple(name for name in self.texts or () if name not in optional)

    @property
    def wanted(self) -> tuple[str, ...] | None:
        """All fields to read; None for the whole record."""
        return None if self.texts is None else tuple(dict.fromkeys([*self.texts, *self.extra]))

    @property
    def may_be_missing(self) -> frozenset[str]:
        """Fields that may be missing from the schema of a file."""
        return self.optional | (self.rendering.optional if self.rendering else frozenset())

    @property
    def has_no_loss(self) -> bool:
        """Whether documents come with ranges excluded from the loss."""
        return self.rendering.has_no_loss if self.rendering else self.no_loss is not None

    @property
    def extra(self) -> tuple[str, ...]:
        """All fields other than the text, in a fixed order."""
        named = [name for name in (self.id, self.no_loss) if name]
        return tuple(dict.fromkeys([*named, *self.keep]))

    def too_long(self, num_bytes: int) -> UnfitRecordError | None:
        """Return why a record of this size is rejected, if it is."""
        if num_bytes <= self.max_record:
            return None
        detail = f"longer than {self.max_record:,} bytes, the limit of --max-record"
        return UnfitRecordError("too-long", detail)


CONVERSATIONS = {"prompt-completion": {"completion"}, "messages": {"messages", "conversations"}}
"""Fields that identify records of each kind of `--chat`."""


MAX_SHOWN_FIELDS = 20


def require_field(name: str, present: set[str], where: str) -> None:
    """Raise a UserError if the first records do not have a field."""
    if name in present:
        return
    shown = ", ".join(sorted(present)[:MAX_SHOWN_FIELDS])
    more = f" and {len(present) - MAX_SHOWN_FIELDS:,} more" * (len(present) > MAX_SHOWN_FIELDS)
    raise UserError(
        f"cannot find the field {name!r} in the first records",
        where=where,
        why=f"the fields are {shown}{more}",
        hint=field_hint(name, present),
    )


def field_hint(name: str, present: Collection[str]) -> str:
    """Return what to do about a missing field, given the fields that records have."""
    for kind, fields in CONVERSATIONS.items():
        if name == "text" and not fields.isdisjoint(present):
            return f"are these conversations? Add --chat {kind}, or --text-field NAME for texts"
    flag = "--text-field " * (name == "text")  # most likely the default: nobody has named it
    if close := nearest(name, [each for each in present if not name.startswith(f"{each}.")]):
        return f"did you mean {flag}{close}?"
    apart = "differs between inputs, --text-field GLOB=NAME for each of them"
    if flag:
        which = "with the name of the field that holds the text"
        return f"add --text-field NAME, {which}; if it {apart}"
    rare = "in --keep and --by, write 'NAME?' if some records lack the field"
    return f"choose one of these; if the text field {apart}; {rare}"

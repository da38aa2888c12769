"""Errors that one process serializes and another process raises."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from tokenmill.core import errors
from tokenmill.core.errors import InternalError, TokenmillError

MAX_TEXT = 10_000

_KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TokenmillError)
}
_Text = Annotated[str, Meta(max_length=MAX_TEXT)]


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A serialized error; long texts are truncated."""

    kind: _Text
    what: _Text
    where: _Text
    why: _Text
    hint: _Text

    @classmethod
    def of(cls, error: BaseException, where: str = "") -> ErrorRecord:
        """Serialize an error; an unexpected exception becomes an InternalError at `where`."""
        if not isinstance(error, TokenmillError):
            why = f"{type(error).__name__}: {error}"
            hint = "run the command again with --debug and report the output"
            error = InternalError("an unexpected error", where=where, why=why, hint=hint)
        return cls(
            kind=next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS),
            what=error.what[:MAX_TEXT],
            where=error.where[:MAX_TEXT],
            why=error.why[:MAX_TEXT],
            hint=error.hint[:MAX_TEXT],
        )

    def rebuild(self) -> TokenmillError:
        """Return the error that was serialized."""
        kind = _KINDS.get(self.kind, InternalError)
        return kind(self.what, where=self.where, why=self.why, hint=self.hint)

"""Error classes. Each message says what happened, where, why and what to do; exit codes are stable.

    TokenmillError                 1   (never raised itself)
    ├── InternalError              1   a bug in tokenmill: please report it
    ├── UserError                  2   a wrong option, field, tokenizer or recipe
    │   ├── OutputConflictError    4   the output folder is taken or locked
    │   └── InputChangedError      8   resume refused: inputs, tokenizer or recipe differ
    ├── DataError                  3   too many bad records, or a record that a policy forbids
    │   └── DamagedInputError      3   an input file is damaged
    ├── VerificationError          5   a dataset does not match its manifest
    ├── StorageError               6   full disk, read-only folder, missing file, failing store
    │   └── MissingObjectError     6   an object does not exist in a store
    └── EngineError                7   an encoding engine crashed, panicked or gave wrong ids

    KeyboardInterrupt
    └── Interrupted              130   stopped by a signal (143 for SIGTERM); the run can be resumed

User errors (2, 4, 8), damaged data (3, 5) and bugs in tokenmill (1) have separate classes.
"""

from __future__ import annotations

import signal


def one_line(name: str) -> str:
    """Escape control characters, so that a file name cannot fake a line of a message."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return "".join(shown)


class TokenmillError(Exception):
    """An error with a message for the user; the base class of all errors below."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        reasons = "\n       ".join(map(one_line, why.split("\n       ")))
        labelled = (("where", one_line(where)), ("why", reasons), ("next", one_line(hint)))
        lines = [one_line(what), *(f"  {label}: {text}" for label, text in labelled if text)]
        super().__init__("\n".join(lines))


class InternalError(TokenmillError):
    """A bug in tokenmill: an internal invariant does not hold."""

    exit_code = 1


class UserError(TokenmillError, ValueError):
    """The request is invalid: a wrong option, field, tokenizer or recipe."""

    exit_code = 2


class OutputConflictError(UserError):
    """The output folder has other content, or another build is writing to it."""

    exit_code = 4


class InputChangedError(UserError):
    """A resumed run has different inputs, tokenizer or recipe than when it started."""

    exit_code = 8


class DataError(TokenmillError):
    """More records were rejected than the recipe allows, or a policy forbids a record."""

    exit_code = 3


class DamagedInputError(DataError):
    """An input file is damaged; only its unit of work fails."""


class VerificationError(TokenmillError):
    """A dataset differs from its manifest or from its sources."""

    exit_code = 5


class StorageError(TokenmillError, OSError):
    """The file system or an object store refused a read or a write."""

    exit_code = 6


class MissingObjectError(StorageError):
    """An object does not exist in an object store."""


class EngineError(TokenmillError):
    """An encoding engine failed, or its token ids differ from the reference tokenizer."""

    exit_code = 7


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run between two commits; committed work is kept.

    This is not a TokenmillError, so that error handlers do not catch it.
    """

    def __init__(self, signal_number: int) -> None:
        is_by_hand = signal_number == signal.SIGINT
        name = signal.Signals(signal_number).name
        super().__init__("interrupted" if is_by_hand else f"stopped by {name}")
        self.exit_code = 128 + signal_number

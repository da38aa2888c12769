"""The error tree: every error says what, where, why and what next, and has a stable exit code.

    TokenmillError                 1   (never raised itself)
    ├── InternalError              1   our own bug: please report it
    ├── UserError                  2   a wrong option, field, tokenizer or recipe
    │   ├── OutputConflictError    4   the output folder is taken or locked
    │   └── InputChangedError      8   resume refused: inputs, tokenizer or recipe differ
    ├── DataError                  3   more bad records than allowed, or what a policy forbids
    │   └── DamagedInputError      3   a file's bytes are not what its format promises
    ├── VerificationError          5   a dataset on disk is not what its manifest says
    ├── StorageError               6   disk full, read-only, vanished files
    │   └── MissingObjectError     6   an object that a store does not have
    └── EngineError                7   an encoding engine crashed, panicked or gave wrong ids

    KeyboardInterrupt
    └── Interrupted              130   stopped by a signal (143 for SIGTERM); the run can be resumed

User mistakes (2, 4, 8), damaged data (3, 5) and our own bugs (1) are different classes on purpose.
"""

from __future__ import annotations


def one_line(name: str) -> str:
    """A name with its control characters spelled out, so that it cannot pass for a line of ours."""
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)
    return "".join(shown)


class TokenmillError(Exception):
    """An error that can be shown to a user as it is."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", why: str = "", hint: str = "") -> None:
        self.what, self.where, self.why, self.hint = what, where, why, hint
        labelled = (("where", one_line(where)), ("why", why), ("next", hint))
        lines = [what, *(f"  {label}: {text}" for label, text in labelled if text)]
        super().__init__("\n".join(lines))


class InternalError(TokenmillError):
    """An invariant of tokenmill itself does not hold."""

    exit_code = 1


class UserError(TokenmillError, ValueError):
    """The request cannot be carried out as it was made."""

    exit_code = 2


class OutputConflictError(UserError):
    """The output folder holds something else, or another build is writing it."""

    exit_code = 4


class InputChangedError(UserError):
    """What a run started with is not what it is resumed with."""

    exit_code = 8


class DataError(TokenmillError):
    """More records were rejected than the recipe allows, or one holds what a policy forbids."""

    exit_code = 3


class DamagedInputError(DataError):
    """A whole input file is damaged: its unit fails, the others go on."""


class VerificationError(TokenmillError):
    """A dataset differs from its manifest or from its sources."""

    exit_code = 5


class StorageError(TokenmillError, OSError):
    """The file system refused a read or a write."""

    exit_code = 6


class MissingObjectError(StorageError):
    """An object store has no such object."""


class EngineError(TokenmillError):
    """An encoding engine failed, or differs from its reference."""

    exit_code = 7


class Interrupted(KeyboardInterrupt):
    """A signal stopped the run between two commits. Nothing that was committed is lost.

    Not a TokenmillError: handlers of errors, ours and those of libraries, let it pass.
    """

    def __init__(self, signal_number: int) -> None:
        super().__init__(f"stopped by signal {signal_number}")
        self.exit_code = 128 + signal_number

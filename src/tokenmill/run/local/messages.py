"""Messages between the main process and its workers: one JSON object per line."""

from __future__ import annotations

import msgspec

from tokenmill.core.error_records import ErrorRecord
from tokenmill.core.errors import EngineError, InternalError, TokenmillError
from tokenmill.run.units import wire
from tokenmill.run.units.assignment import Assignment, Outcome, Tally
from tokenmill.run.units.careful import Encoding
from tokenmill.store.files import storage_error


class Calibrate(msgspec.Struct, tag="calibrate", kw_only=True):
    """To a worker: encode these texts and compare the ids."""

    texts: list[str]
    ids: list[int]
    offsets: list[int]


class Started(msgspec.Struct, tag="started", kw_only=True):
    """From a worker: the engine is loaded."""

    seconds: float


class Calibrated(msgspec.Struct, tag="calibrated", kw_only=True):
    """From a worker: the engine agrees with the reference."""


class Progress(msgspec.Struct, tag="progress", kw_only=True):
    """From a worker: a batch of a unit is done."""

    tally: Tally


class Encoded(msgspec.Struct, tag="encoded", kw_only=True):
    """From a worker: ready for the next unit while the last one is flushed."""

    full: bool = False
    """Whether its memory has grown beyond its share, so that it takes no more units."""


class Exceeded(msgspec.Struct, tag="exceeded", kw_only=True):
    """From a worker: it stopped a unit because its memory had grown too much."""

    key: str
    grown_bytes: int
    source: int
    position: int
    """The position of the last finished record."""


class Failed(msgspec.Struct, tag="failed", kw_only=True):
    """From a worker: an error ended a unit, or if the key is "", the engine."""

    key: str
    error: ErrorRecord
    source: int | None = None


Command = Assignment | Calibrate
Message = Started | Calibrated | Encoding | Progress | Encoded | Exceeded | Outcome | Failed


def failure(key: str, error: BaseException, source: int | None) -> Failed:
    """Return the message for an error of any kind."""
    if isinstance(error, OSError) and not isinstance(error, TokenmillError):
        error = storage_error(error, "read or write a file")
    elif isinstance(error, MemoryError):
        hint = "raise --memory, or lower --workers"
        error = EngineError("a worker ran out of memory", where=key, why=str(error), hint=hint)
    return Failed(key=key, error=ErrorRecord.of(error, where=f"unit {key}"), source=source)


def decode(line: bytes) -> Message:
    """Decode a message of a worker.

    Raises:
        InternalError: the line is not a message.
    """
    try:
        message: Message = _DECODER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        why = f"{error}, in {line[:200]!r}"
        hint = "please report this"
        raise InternalError("a worker sent an invalid message", why=why, hint=hint) from error
    return message


_DECODER = wire.decoder(Message)

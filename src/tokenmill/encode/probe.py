"""Try a tokenizer with unknown steps in a child process before using it.

A library call cannot be interrupted. So a child process loads the tokenizer and encodes the
calibration texts, and is killed if it takes too long or too much memory. Tokenizers with only
known steps are not tried.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

import msgspec

from tokenmill.core.child import Child, ChildEnded, Limits, Parent, Program
from tokenmill.encode.exactness import MAX_SHOWN_CHARACTERS, hostile_texts
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.steps import steps_before_model, unknown_step
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_bounds import cannot_load

PROBE_SECONDS = 60.0
PROBE_BYTES = 2_000_000_000
BYTES_A_BYTE = 50
"""Memory allowed per byte of the file; the library needs 15 to load it (measured)."""
DONE = ""
"""The last message of the child; the others say what it tries next."""
PROGRAM = Program(module=__name__, task="tries a tokenizer", replies=str, stderr="discarded")


class _Request(msgspec.Struct):
    """What the child process receives."""

    kind: str
    data: bytes
    encoding: str
    rank_encoding: bytes
    texts: list[str] | None


def require_harmless(file: TokenizerFile) -> TokenizerFile:
    """Return the tokenizer, after a trial in a child process if it has an unknown step.

    Raises:
        UserError: loading it, or encoding a short text, takes too long or too much memory.
    """
    if why := probe(file):
        hint = "use a tokenizer from a source that you trust"
        raise cannot_load(file.origin, why, hint)
    return file


def probe(file: TokenizerFile, texts: Sequence[str] | None = None) -> str:
    """Return how a tokenizer fails on texts, by default those of the calibration; "" if it passes.

    Errors that the library raises are ignored, because this process will get them too.
    """
    unknown = unknown_step(file)
    if not unknown:
        return ""
    allowed = PROBE_BYTES + BYTES_A_BYTE * len(file.data)
    request = _Request(
        kind=file.kind,
        data=file.data,
        encoding=file.encoding,
        rank_encoding=file.rank_encoding,
        texts=None if texts is None else list(texts),
    )
    child = Child(PROGRAM)
    child.send(request)
    place = "at its start"
    last = time.monotonic() + PROBE_SECONDS
    try:
        while (left := last - time.monotonic()) > 0:
            found, _ = child.receive(Limits(left, allowed))
            if found == DONE:
                return ""
            place = found
        failure = "took too long"
    except ChildEnded as error:
        failure = "took too long" if error.limit == "time" else error.why.removeprefix("it ")
    finally:
        child.end()
    return f"it has {unknown}, and a trial {failure}: {place}"


def main() -> None:
    """Run in the child: name each step and text, then try it."""
    parent = Parent(_Request)
    request, _ = parent.receive()
    file = TokenizerFile(
        request.kind, request.data, request.encoding, rank_encoding=request.rank_encoding
    )
    with contextlib.suppress(BaseException):  # the main process will get the same error
        _try(file, request.texts, parent)
    parent.send(DONE)


def _try(file: TokenizerFile, texts: Sequence[str] | None, parent: Parent) -> None:
    parent.send("loading it")
    reference = load_reference(file, control_tokens=False)
    parent.send("normalizer on characters of every kind")
    texts = hostile_texts(reference) if texts is None else texts
    steps = [*steps_before_model(file), ("tokenizer", lambda text: reference.encode([text]))]
    for text in texts:
        shown = repr(text[:MAX_SHOWN_CHARACTERS])
        for name, step in steps:
            parent.send(f"{name} on {shown}")
            with contextlib.suppress(BaseException):  # a Rust panic is not an Exception
                step(text)

"""Try a tokenizer with unknown steps in a child process before using it.

A library call cannot be interrupted. So a child process loads the tokenizer and encodes the
calibration texts, and is killed if it takes too long or too much memory. Tokenizers with only
known steps are not tried.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

import msgspec
import psutil

from tokenmill.encode.exactness import MAX_SHOWN_CHARACTERS, hostile_texts
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.steps import steps_before_model, unknown_step
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_bounds import cannot_load

PROBE_SECONDS = 60.0
PROBE_BYTES = 2_000_000_000
BYTES_A_BYTE = 50
"""Memory allowed per byte of the file; the library needs 15 to load it (measured)."""
LOOK_SECONDS = 0.02


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
    with tempfile.TemporaryFile() as commands, tempfile.TemporaryFile() as answers:
        commands.write(msgspec.msgpack.encode(request))
        commands.seek(0)
        if failure := _watch(commands, answers, allowed):
            answers.seek(0)
            place = answers.read().decode().rpartition("\n")[0].rpartition("\n")[2]
            return f"it has {unknown}, and a trial {failure}: {place or 'at its start'}"
    return ""


def _watch(commands: IO[bytes], answers: IO[bytes], allowed_bytes: int) -> str:
    """Run a child process, and kill it if it exceeds a limit. Return how it failed, or ""."""
    popen = subprocess.Popen(
        # -P: do not import modules from the current folder.
        [sys.executable, "-P", "-m", "tokenmill.encode.probe"],
        stdin=commands,
        stdout=answers,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    started = time.monotonic()
    try:
        while popen.poll() is None:
            if time.monotonic() - started > PROBE_SECONDS:
                return f"did not end within {PROBE_SECONDS:g} s"
            if _resident_bytes(popen.pid) > allowed_bytes:
                return f"took more than {allowed_bytes:,} bytes of memory"
            time.sleep(LOOK_SECONDS)
    finally:
        popen.kill()
        popen.wait()
    return f"ended with exit code {popen.returncode}" if popen.returncode else ""


def _resident_bytes(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def main() -> None:
    """Run in the child: print each step and text, then try it."""
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=_Request)
    file = TokenizerFile(
        request.kind, request.data, request.encoding, rank_encoding=request.rank_encoding
    )
    try:
        _say("loading it")
        reference = load_reference(file, control_tokens=False)
        _say("normalizer on characters of every kind")
        texts = hostile_texts(reference) if request.texts is None else request.texts
        steps = [*steps_before_model(file), ("tokenizer", lambda text: reference.encode([text]))]
    except BaseException:
        return  # the main process will get the same error
    for text in texts:
        for name, step in steps:
            _say(f"{name} on {text[:MAX_SHOWN_CHARACTERS]!r}")
            with contextlib.suppress(BaseException):  # a Rust panic is not an Exception
                step(text)


def _say(place: str) -> None:
    sys.stdout.buffer.write(place.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

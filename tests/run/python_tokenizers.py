"""Tokenizers in plain Python: one that is right, and one for each thing that can be wrong."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path


class ByteTokenizer:
    """A token for each byte of UTF-8, and 256 for the end of a document."""

    vocab_size = 257
    eos_token = "<end>"
    eos_token_id = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        pieces = [bytes([i]) if i < 256 else b"<end>" for i in ids]
        return b"".join(pieces).decode(errors="replace")


class EndingBytes(ByteTokenizer):
    """Puts the end of a document itself."""

    def encode(self, text: str) -> list[int]:
        return [*super().encode(text), 256]


class SlowBytes(ByteTokenizer):
    """Slow enough to be killed in the middle, but not while it is calibrated."""

    def encode(self, text: str) -> list[int]:
        if text.count(" ") > 20:
            time.sleep(0.001)
        return super().encode(text)


class RandomBytes(ByteTokenizer):
    """Upper and lower case by chance."""

    def encode(self, text: str) -> list[int]:
        return super().encode(text if random.random() < 0.5 else text.upper())


class TiringBytes(ByteTokenizer):
    """Right up to some number of calls, upper case from then on."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def encode(self, text: str) -> list[int]:
        self.calls -= 1
        return super().encode(text if self.calls > 0 else text.upper())


class FailingBytes(ByteTokenizer):
    """Raises for one word."""

    def encode(self, text: str) -> list[int]:
        if "unspeakable" in text:
            raise ValueError("there are no words for it")
        return super().encode(text)


class HoardingBytes(ByteTokenizer):
    """Keeps memory for ever at one word; where a path is given, only the first time."""

    def __init__(self, num_bytes: int, once: Path | None = None) -> None:
        self.num_bytes = num_bytes
        self.once = once
        self.hoard: list[bytes] = []

    def encode(self, text: str) -> list[int]:
        if "hoard" in text and not (self.once and self.once.exists()):
            self.hoard.append(b"x" * self.num_bytes)
            if self.once:
                self.once.touch()
        return super().encode(text)


class ForkingBytes(ByteTokenizer):
    """In every process but that which made it, starts another one that lives for ten minutes.

    A file in the folder `pids` bears the number of the first, and holds that of the second.
    """

    def __init__(self, pids: Path) -> None:
        self.pids = pids
        self.known = {os.getpid()}

    def encode(self, text: str) -> list[int]:
        if os.getpid() not in self.known:
            self.known.add(os.getpid())
            if not (child := os.fork()):
                time.sleep(600)
                os._exit(0)
            (self.pids / str(os.getpid())).write_text(str(child))
        return super().encode(text)


class UnsendableBytes(ByteTokenizer):
    """Holds what no process can send to another."""

    def __init__(self) -> None:
        self.source = (number for number in range(3))


class EncodingOnly:
    """Tells nothing of itself."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())


def make_bytes() -> ByteTokenizer:
    return ByteTokenizer()


BYTES = ByteTokenizer()


class SleepingBytes(ByteTokenizer):
    """Never returns from one word; a file in the folder `asleep` is named after its process."""

    def __init__(self, asleep: Path) -> None:
        self.asleep = asleep

    def encode(self, text: str) -> list[int]:
        if "slumber" in text:
            (self.asleep / str(os.getpid())).touch()
            time.sleep(600)
        return super().encode(text)


class DyingBytes(ByteTokenizer):
    """Ends its process at one word; where a path is given, only the first time."""

    def __init__(self, once: Path | None = None) -> None:
        self.once = once

    def encode(self, text: str) -> list[int]:
        if "perish" in text and not (self.once and self.once.exists()):
            if self.once:
                self.once.touch()
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().encode(text)

"""An HTTP proxy that breaks things, in front of a test server; seeded, in a thread of its own.

Each fault is what stores and networks do for real:

    busy       503 SlowDown, without asking the server
    error      500 InternalError, without asking the server
    reset      the connection breaks before the server is asked
    late       the server acts, and its answer is lost
    cut        the body of an answer breaks off in the middle
    conflict   409 to a conditional write, without asking the server
    slow_ms    mean of a wait before each request, 0.5 to 1.5 times that
    hide_seconds   how long listings do not show a new key
    strip_conditions   the server never sees If-None-Match and its kin: a store that lies
    refuse     status and code, as (403, "ExpiredToken"), for everything while it is set

The first six are probabilities. All can be changed while it runs.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

CONDITIONS = ("if-none-match", "if-match", "x-goog-if-generation-match")
WRITES = ("PUT", "POST", "DELETE")


@dataclass
class Chaos:
    """The faults of a proxy, what it has counted, and its port."""

    busy: float = 0
    error: float = 0
    reset: float = 0
    late: float = 0
    cut: float = 0
    conflict: float = 0
    slow_ms: float = 0
    hide_seconds: float = 0
    strip_conditions: bool = False
    refuse: tuple[int, str] | None = None
    seed: int = 1

    port: int = 0
    counted: Counter[str] = field(default_factory=Counter)
    """Requests by method, and faults by name."""
    made: dict[str, float] = field(default_factory=dict)
    """When each key was written, by path."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def hits(self, fault: str) -> bool:
        """Whether a fault happens now; it is counted."""
        hit = self.random.random() < getattr(self, fault)
        self.counted[fault] += hit
        return hit

    @property
    def num_requests(self) -> int:
        """Requests that came, answered or not."""
        return sum(self.counted[method] for method in ("GET", "HEAD", *WRITES))


STORM = {"busy": 0.05, "error": 0.05, "reset": 0.05, "late": 0.05, "cut": 0.05, "conflict": 0.05}
"""Five per cent of each fault."""


@contextmanager
def chaos(server_port: int, faults: Chaos | None = None) -> Iterator[Chaos]:
    """Run a proxy in front of a server; yield its faults, which may be changed."""
    faults = faults or Chaos()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    connections: set[asyncio.Task[None]] = set()  # a loop has weak references only

    async def start() -> asyncio.Server:
        def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = loop.create_task(_Connection(faults, server_port, reader, writer).serve())
            connections.add(task)
            task.add_done_callback(connections.discard)

        return await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 30, backlog=512)

    async def stop() -> None:
        server.close()
        await asyncio.sleep(0)  # connections that were just accepted become tasks
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    faults.port = server.sockets[0].getsockname()[1]
    try:
        yield faults
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class _Message:
    """A request or an answer as it came: start line, header, body."""

    start: str
    header: list[tuple[str, str]]
    body: bytes = b""

    def get(self, name: str) -> str:
        return next((value for key, value in self.header if key.lower() == name), "")

    @property
    def encoded(self) -> bytes:
        lines = [self.start, *(f"{key}: {value}" for key, value in self.header), "", ""]
        return "\r\n".join(lines).encode("latin1") + self.body


class _Connection:
    """A client's connection, and the one to the server that it needs."""

    def __init__(
        self,
        faults: Chaos,
        server_port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._faults, self._server_port = faults, server_port
        self._reader, self._writer = reader, writer
        self._server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def serve(self) -> None:
        try:
            while await self._one_request():
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writer.transport.abort()
            if self._server:
                self._server[1].transport.abort()

    async def _one_request(self) -> bool:
        """Answer a request, or do not; whether the connection lives on."""
        faults = self._faults
        request = await _received(self._reader)
        method, path = request.start.split(" ")[:2]
        faults.counted[method] += 1
        if faults.slow_ms:
            await asyncio.sleep(faults.slow_ms / 1000 * faults.random.uniform(0.5, 1.5))
        if (refusal := self._refusal(method, request)) is not None:
            return await self._answer(refusal)
        if faults.hits("reset"):
            return False
        if faults.strip_conditions:
            kept = [pair for pair in request.header if pair[0].lower() not in CONDITIONS]
            request.header = kept
        answer = await self._asked(method, request)
        if method in WRITES:
            faults.made[unquote(urlsplit(path).path)] = time.monotonic()
        if method in WRITES and faults.hits("late"):
            return False
        if method == "GET" and b"<ListBucketResult" in answer.body[:200]:
            answer = self._without_new_keys(unquote(urlsplit(path).path), answer)
        if method == "GET" and len(answer.body) > 1000 and faults.hits("cut"):
            part = faults.random.randrange(len(answer.body))
            self._writer.write(answer.encoded[: part - len(answer.body)])
            await self._writer.drain()
            return False
        return await self._answer(answer)

    def _refusal(self, method: str, request: _Message) -> _Message | None:
        faults = self._faults
        if faults.refuse is not None:
            return _failure(*faults.refuse)
        if faults.hits("busy"):
            return _failure(503, "SlowDown")
        if faults.hits("error"):
            return _failure(500, "InternalError")
        conditional = method in WRITES and any(map(request.get, CONDITIONS))
        if conditional and faults.hits("conflict"):
            return _failure(409, "ConditionalRequestConflict")
        return None

    async def _answer(self, answer: _Message) -> bool:
        self._writer.write(answer.encoded)
        await self._writer.drain()
        return True

    async def _asked(self, method: str, request: _Message) -> _Message:
        """What the server answers; a connection that it has closed is opened once more."""
        for _ in range(2):
            fresh = self._server is None
            if self._server is None:
                self._server = await asyncio.open_connection(
                    "127.0.0.1", self._server_port, limit=1 << 30
                )
            reader, writer = self._server
            try:
                writer.write(request.encoded)
                await writer.drain()
                answer = await _received(reader, has_body=method != "HEAD")
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.transport.abort()
                self._server = None
                if fresh:
                    raise
                continue
            if answer.get("connection").lower() == "close":
                writer.transport.abort()
                self._server = None
            return answer
        raise ConnectionResetError

    def _without_new_keys(self, bucket: str, answer: _Message) -> _Message:
        """A listing without keys that were written a moment ago."""
        since = time.monotonic() - self._faults.hide_seconds
        hidden = {key for key, made in list(self._faults.made.items()) if made > since}

        def shown(found: re.Match[str]) -> str:
            key = f"{bucket.rstrip('/')}/{unquote(found[1])}"
            self._faults.counted["hidden"] += key in hidden
            return "" if key in hidden else found[0]

        text = answer.body.decode()
        text = re.sub(r"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", shown, text, flags=re.DOTALL)
        body = text.encode()
        header = [pair for pair in answer.header if pair[0].lower() != "content-length"]
        return _Message(answer.start, [*header, ("Content-Length", str(len(body)))], body)


async def _received(reader: asyncio.StreamReader, *, has_body: bool = True) -> _Message:
    """A request, or an answer; a body in chunks is joined."""
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    message = _Message(first, [(key, value.strip()) for key, _, value in pairs])
    if not has_body:
        return message
    if message.get("transfer-encoding").lower() == "chunked":
        message.body = await _chunks(reader)
        kept = [pair for pair in message.header if pair[0].lower() != "transfer-encoding"]
        message.header = [*kept, ("Content-Length", str(len(message.body)))]
    elif num_bytes := int(message.get("content-length") or 0):
        message.body = await reader.readexactly(num_bytes)
    return message


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while num_bytes := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += (await reader.readexactly(num_bytes + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return body


def _failure(status: int, code: str) -> _Message:
    body = f"<Error><Code>{code}</Code><Message>a fault of the test</Message></Error>".encode()
    header = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    return _Message(f"HTTP/1.1 {status} {code}", header, body)

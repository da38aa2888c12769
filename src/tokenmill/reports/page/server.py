"""Serves the live page to browsers on this machine.

The server of the standard library is enough for one page on the loopback interface, and brings no
dependency. What it lacks is here: a limit on connections, time limits, and checks of each request.
Only who knows the address with its random token gets anything; another site in the same browser
does not, and a name that it points to this machine (DNS rebinding) is refused.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.pictures import STYLE
from tokenmill.reports.page.document import digest_of, resource
from tokenmill.reports.page.live import fragments, live_page, title
from tokenmill.reports.watching import Watched

HOST = "127.0.0.1"
MAX_CONNECTIONS = 32
MAX_SECONDS = 10.0
"""The longest wait for a request, or for a browser that does not read."""
REDRAW_SECONDS = 1.0
RESOURCES = {
    "page.css": ("css", ("page.css", "watch.css")),
    "watch.js": ("javascript", ("watch.js",)),
}
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    f"style-src 'self' 'unsafe-hashes' 'sha256-{digest_of(STYLE)}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """The server of one page. `view` returns the runs as they are at the moment."""

    daemon_threads = True

    def __init__(self, port: int, view: Callable[[], Sequence[Watched]]) -> None:
        self.view, self.token = view, secrets.token_urlsafe(16)
        self._room = threading.BoundedSemaphore(MAX_CONNECTIONS)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            hint = "choose another --port, or omit it for a free one"
            raise UserError(f"cannot listen on port {port}", why=str(error), hint=hint) from error

    @property
    def address(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own; close it at once if there are too many."""
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser may leave at any time."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = MAX_SECONDS

    def setup(self) -> None:
        """End the connection of a client that takes too long over its request."""
        super().setup()
        self._deadline = threading.Timer(MAX_SECONDS, self._hang_up)
        self._deadline.daemon = True
        self._deadline.start()

    def finish(self) -> None:
        """Close the connection."""
        self._deadline.cancel()
        super().finish()

    def _hang_up(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    server_version, sys_version = "tokenmill", ""

    def do_GET(self) -> None:
        """Answer a request for one of four names below the token."""
        hosts = [f"{name}:{self.server.server_port}" for name in (HOST, "localhost")]
        folder, _, name = self.path.rpartition("/")
        is_known = hmac.compare_digest(folder.encode(), f"/{self.server.token}".encode())
        if not is_known or self.headers.get("Host") not in hosts:
            self.send_error(404)
        elif name == "":
            self._send("html", live_page(self.server.view()))
        elif name == "events":
            self._send_events()
        elif name in RESOURCES:
            kind, files = RESOURCES[name]
            self._send(kind, "".join(map(resource, files)))
        else:
            self.send_error(404)

    def send_error(self, code: int, *_: Any, **__: Any) -> None:
        """Answer with a code and its name."""
        self._send("plain", f"{int(code)} {self.responses.get(code, ('',))[0]}\n", code)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _send(self, kind: str, text: str = "", code: int = 200) -> None:
        self._deadline.cancel()
        self.send_response(code)
        self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode(errors="replace"))

    def _send_events(self) -> None:
        """Send the parts of the page that have changed, each second until the browser leaves."""
        self._send("event-stream")
        sent: dict[str, str] = {}
        while True:
            runs = self.server.view()
            parts = {name: part for name, part in fragments(runs).items() if sent.get(name) != part}
            sent |= parts
            event = msgspec.json.encode({"title": title(runs), "parts": parts})
            self.wfile.write(b"data: " + event + b"\n\n" if parts else b":\n\n")
            time.sleep(REDRAW_SECONDS)

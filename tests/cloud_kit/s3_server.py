"""S3 by moto, run as a script: prints its port, serves until its input ends.

moto looks whether an object exists and stores it in two steps, which threads may interleave. S3 is
one server to its users, so conditional writes take turns here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from threading import Lock, Thread
from typing import Any

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

CONDITIONS = ("HTTP_IF_NONE_MATCH", "HTTP_IF_MATCH")


def in_turns(application: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """The application, with conditional writes one after another."""
    turn = Lock()

    def answer(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        writes = environ["REQUEST_METHOD"] in ("PUT", "POST")
        if writes and any(condition in environ for condition in CONDITIONS):
            with turn:
                return application(environ, start_response)
        return application(environ, start_response)

    return answer


class QuietHandler(MotoRequestHandler):
    """Writes no line for each request."""

    protocol_version = "HTTP/1.1"

    def log_request(self, *arguments: object) -> None:
        return


if __name__ == "__main__":
    application = in_turns(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=QuietHandler)
    print(server.server_port, flush=True)
    Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()

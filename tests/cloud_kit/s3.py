"""S3 by moto, a real server process."""

from __future__ import annotations

import atexit
import http.client
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

from cloud_kit.processes import python_server

BUCKET = "bucket"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIATEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-no-output-may-hold",
    "AWS_REGION": "us-east-1",
}


@cache
def s3_server() -> int:
    """The port on 127.0.0.1 of one server for all tests of a process: it takes seconds to start."""
    opened = ExitStack()
    atexit.register(opened.close)
    return opened.enter_context(python_server(Path(__file__).with_name("s3_server.py")))


@contextmanager
def moto() -> Iterator[int]:
    """Serve S3 with one empty bucket, and nothing else; the port on 127.0.0.1."""
    ask(s3_server(), "POST", "/moto-api/reset")
    make_bucket(s3_server(), BUCKET)
    yield s3_server()


def make_bucket(port: int, bucket: str) -> None:
    """Make an empty bucket."""
    ask(port, "PUT", f"/{bucket}")


def ask(port: int, method: str, path: str) -> None:
    """Ask the server for something that it does."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path)
    assert connection.getresponse().status == 200
    connection.close()


def s3_environment(port: int) -> dict[str, str]:
    """The variables with which clients find the server on a port, or a proxy in front of it."""
    return {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}

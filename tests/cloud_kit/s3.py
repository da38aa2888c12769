"""S3 by moto, a real server process."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud_kit.processes import python_server

BUCKET = "bucket"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "AKIATEST",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-no-output-may-hold",
    "AWS_REGION": "us-east-1",
}


@contextmanager
def moto() -> Iterator[int]:
    """Serve S3 with one empty bucket; the port on 127.0.0.1."""
    with python_server(Path(__file__).with_name("s3_server.py")) as port:
        make_bucket(port, BUCKET)
        yield port


def make_bucket(port: int, bucket: str) -> None:
    """Make an empty bucket."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("PUT", f"/{bucket}")
    assert connection.getresponse().status == 200
    connection.close()


def s3_environment(port: int) -> dict[str, str]:
    """The variables with which clients find the server on a port, or a proxy in front of it."""
    return {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}

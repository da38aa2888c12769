"""A real S3 server on this machine, and the environment of a user who has its keys."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("obstore", reason="needs the extra cloud")
pytest.importorskip("moto.server", reason="needs the package moto[server]")

REGION = "us-east-1"
SECRET = "a-secret-that-nobody-may-see"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Its address; it holds nothing yet."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").disabled = True
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty bucket; the environment names its server and holds the keys."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-access-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    bucket = boto3.resource("s3").Bucket(f"test-{uuid.uuid4().hex}")
    bucket.create()
    return bucket

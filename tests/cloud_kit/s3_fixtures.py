"""Fixtures: a real S3 server, and the environment of a user who has its keys."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from cloud_kit.s3 import s3_environment, s3_server


@pytest.fixture(scope="session")
def s3_port() -> int:
    """The port of a server on 127.0.0.1."""
    pytest.importorskip("obstore", reason="needs the extra cloud")
    pytest.importorskip("moto.server", reason="needs the package moto[server]")
    return s3_server()


@pytest.fixture
def bucket(s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty bucket of boto3; the environment names its server and holds the keys."""
    import boto3

    for name, value in s3_environment(s3_port).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")  # boto3 reads only this one
    bucket = boto3.resource("s3").Bucket(f"test-{uuid.uuid4().hex}")
    bucket.create()
    return bucket

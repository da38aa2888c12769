"""A moto for the tests of a module, and stores of it that see nothing of the user's credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from cloud_kit.s3 import BUCKET, moto, s3_environment
from tokenmill.store.objects.bucket import BucketStore
from tokenmill.store.objects.opening import open_store

PREFIXES = count()


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    with moto() as port:
        yield port


@pytest.fixture
def s3_store(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], BucketStore]:
    """Open the store of a fresh prefix through a port."""

    def opened(port: int) -> BucketStore:
        for name, value in s3_environment(port).items():
            monkeypatch.setenv(name, value)
        store = open_store(f"s3://{BUCKET}/prefix-{next(PREFIXES)}")
        assert isinstance(store, BucketStore)
        return store

    return opened

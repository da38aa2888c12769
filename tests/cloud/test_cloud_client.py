from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tokenmill.core.errors import (
    InputChangedError,
    MissingObjectError,
    StorageError,
    TokenmillError,
    UserError,
)
from tokenmill.reports.status import build_status
from tokenmill.store.cloud.client import Client, ObjectInfo


@pytest.fixture
def client(bucket: Any) -> Client:
    return Client(f"s3://{bucket.name}/corpus")


def test_an_object_is_what_was_put(client: Client) -> None:
    client.put("a/b.json", b"hello")
    assert client.get("a/b.json") == b"hello"
    assert client.get_range("a/b.json", 1, 3) == b"el"
    found = client.head("a/b.json")
    assert found == ObjectInfo("a/b.json", 5, '"5d41402abc4b2a76b9719d911017c592"')


@pytest.mark.parametrize("key", ["a b", "a%20b", "ü", "a+b", "q?x", "h#y", "*g[1]", "a/b/c"])
def test_keys_may_hold_any_character(client: Client, bucket: Any, key: str) -> None:
    client.put(key, b"hello")
    assert client.get(key) == b"hello"
    assert [found.key for found in bucket.objects.all()] == [f"corpus/{key}"]
    assert [found.key for found in client.list()] == [key]


@pytest.mark.parametrize("key", ["a//b", "../a", "a/./b"])
def test_keys_that_leave_the_location_are_refused(client: Client, key: str) -> None:
    with pytest.raises(UserError, match="this name is not valid for an object"):
        client.get(key)


def test_many_objects_are_got_at_once(client: Client) -> None:
    for number in range(200):
        client.put(f"receipts/{number}", b"%d" % number)
    keys = [f"receipts/{number}" for number in range(201)]
    found = dict(client.get_many(keys))
    assert found == {f"receipts/{n}": b"%d" % n for n in range(200)} | {"receipts/200": None}


def test_listings_are_sorted_and_whole(client: Client, bucket: Any) -> None:
    keys = sorted(f"tokens/{number}" for number in range(1100))
    for key in keys:
        bucket.put_object(Key=f"corpus/{key}", Body=b"")
    bucket.put_object(Key="corpus/tokens2", Body=b"")
    assert [found.key for found in client.list("tokens")] == keys
    assert [found.key for found in client.list_folder()] == ["tokens2"]
    assert list(client.list("nothing")) == []


def test_a_file_is_put_in_parts(
    client: Client, bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill.store.cloud.client.PART_BYTES", 5 << 20)
    path = tmp_path / "shard.bin"
    path.write_bytes(bytes(range(256)) * (6 << 12))
    client.put_file("tokens/0.bin", path)
    assert client.get("tokens/0.bin") == path.read_bytes()
    assert bucket.Object("corpus/tokens/0.bin").e_tag.endswith('-2"')


def test_an_object_that_was_overwritten_is_not_read(client: Client) -> None:
    client.put("a", b"before")
    found = client.head("a")
    assert found is not None
    client.put("a", b"after!")
    with pytest.raises(InputChangedError, match="changed during the build") as error:
        client.get_range("a", 0, 3, found.etag)
    assert error.value.exit_code == 8


def test_ranges_of_what_is_not_there_are_errors(client: Client) -> None:
    with pytest.raises(MissingObjectError, match="does not exist"):
        client.get_range("a", 0, 3)
    client.put("a", b"12345")
    with pytest.raises(StorageError, match="5 of 9 bytes"):
        client.get_range("a", 0, 9)


def test_a_bucket_that_does_not_exist_is_a_mistake(bucket: Any) -> None:
    with pytest.raises(UserError, match="cannot find a bucket"):
        list(Client("s3://no-such-bucket").list())
    with pytest.raises(UserError, match="cannot find a bucket"):
        Client("s3://no-such-bucket").get("a")
    with pytest.raises(UserError, match="cannot find a bucket"):
        build_status("s3://no-such-bucket/corpus")


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("s3://", "a location names no bucket or host"),
        ("ftp://host/a", "a location names no bucket or host"),
        ("s3://key:hunter2@bucket/a", "must not contain a user or a password"),
        ("https://host/a?sig=hunter2", "must not contain a query"),
        ("s3://bucket/a//b", "this name is not valid for an object"),
    ],
)
def test_names_that_cannot_be_kept_are_refused(name: str, what: str) -> None:
    with pytest.raises(TokenmillError, match=what) as error:
        Client(name)
    assert "hunter2" not in str(error.value)


def test_names_are_those_of_objects_and_folders(client: Client, bucket: Any) -> None:
    for key in ("corpus/a", "corpus/b/c/d", "corpus2/e"):
        bucket.put_object(Key=key, Body=b"")
    assert client.names() == {"a", "b"}


def test_an_object_that_cannot_be_named_is_a_mistake_and_not_overlooked(
    client: Client, bucket: Any
) -> None:
    bucket.put_object(Key="corpus/a//b", Body=b"")
    with pytest.raises(UserError, match="this name is not valid for an object"):
        list(client.list())

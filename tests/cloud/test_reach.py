"""A host that cannot be reached is named within seconds; one that is slow is waited for."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from tokenmill.core.errors import StorageError, UserError
from tokenmill.read.source import Access
from tokenmill.read.sources import find_sources
from tokenmill.store.cloud import reach
from tokenmill.store.cloud.client import Client


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "PAUSES", (0.05, 0.1))
    monkeypatch.setattr(reach, "CONNECT_SECONDS", 0.3)
    monkeypatch.setattr(reach, "MAX_SECONDS", 0.5)
    monkeypatch.setattr(reach, "_failed", {})
    monkeypatch.setattr(reach, "_reached", set())  # another test's server may have had the port
    monkeypatch.setattr(reach, "getproxies", dict)


@pytest.fixture
def closed() -> str:
    """The address of a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_closed_port_is_named(closed: str) -> None:
    with pytest.raises(StorageError, match="cannot reach a host") as error:
        Client(f"http://{closed}").get("a.jsonl")
    assert error.value.where == f"http://{closed}/a.jsonl"
    assert error.value.why == f"no connection to {closed} ([Errno 111] Connection refused)"


def test_a_hub_that_cannot_be_reached_is_named(
    closed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", f"http://{closed}")
    with pytest.raises(StorageError, match="cannot reach a host") as error:
        find_sources(["hf://datasets/o/n"], access=Access("download", str(tmp_path)))
    assert error.value.why == f"no connection to {closed} ([Errno 111] Connection refused)"
    assert "HF_ENDPOINT" in (error.value.hint or "")


@pytest.mark.parametrize("address", ["127.0.0.1:9", ""])
def test_an_endpoint_that_is_no_address_is_refused(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(UserError, match="HF_ENDPOINT is not an address") as error:
        find_sources(["hf://datasets/o/n"], access=Access("download", str(tmp_path)))
    assert error.value.why == "it does not begin with https:// or http://"


def test_a_look_up_that_takes_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = threading.Event()

    def slow(*_: object) -> None:
        given_up.wait()
        raise OSError("too late")

    monkeypatch.setattr(socket, "create_connection", slow)
    with pytest.raises(StorageError, match="no answer within"):
        reach.require_reachable("https://slow.invalid", "https://slow.invalid/a", "")
    given_up.set()


def test_a_host_is_looked_for_once_and_many_requests_share_a_failure(
    closed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, int]] = []
    connect = reach._failure_to_connect

    def counted(host: str, port: int) -> str:
        tried.append((host, port))
        return connect(host, port)

    monkeypatch.setattr(reach, "_failure_to_connect", counted)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        for _ in range(3):
            reach.require_reachable(address, address, "")
    assert len(tried) == 1
    for _ in range(3):
        with pytest.raises(StorageError):
            reach.require_reachable(f"http://{closed}", "a", "")
    assert len(tried) == 4


def test_a_proxy_is_what_must_be_reached(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "getproxies", lambda: {"https": f"http://{closed}"})
    monkeypatch.setattr(reach, "proxy_bypass", lambda host: host == "near.invalid")
    assert reach._host_of("https://far.invalid") == ("127.0.0.1", int(closed.split(":")[1]))
    assert reach._host_of("https://near.invalid") == ("near.invalid", 443)

"""Credentials: where they are found, that they are renewed, and that nobody sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cloud_kit.chaos import Chaos, chaos
from cloud_kit.s3 import ENVIRONMENT
from tokenmill.core.errors import StorageError, UserError
from tokenmill.core.installed import install_command
from tokenmill.store.cloud import stores
from tokenmill.store.cloud.client import Client
from tokenmill.store.cloud.failures import admission_environment
from tokenmill.store.cloud.stores import set_options

SECRET = ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]


@pytest.fixture
def proxy(bucket: Any, s3_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chaos]:
    """The server with faults, which the environment names."""
    with chaos(s3_port) as faults:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{faults.port}")
        yield faults


@pytest.mark.parametrize(
    "refusal", [(400, "ExpiredToken"), (403, "ExpiredToken"), (403, "RequestExpired")]
)
def test_expired_credentials_are_renewed_once(
    bucket: Any, proxy: Chaos, monkeypatch: pytest.MonkeyPatch, refusal: tuple[int, str]
) -> None:
    """Row 11 of the fault matrix."""
    client = Client(f"s3://{bucket.name}")
    client.put("a", b"hello")
    opened = stores.open_bucket

    def renewed(*arguments: Any) -> Any:
        proxy.refuse = None
        return opened(*arguments)

    monkeypatch.setattr("tokenmill.store.cloud.client.open_bucket", renewed)
    proxy.refuse = refusal
    before = proxy.num_requests
    assert client.get("a") == b"hello"
    assert proxy.num_requests == before + 2


@pytest.mark.parametrize("refusal", [(400, "ExpiredToken"), (403, "ExpiredToken")])
def test_credentials_that_stay_expired_end_a_run_that_can_be_resumed(
    bucket: Any, proxy: Chaos, refusal: tuple[int, str]
) -> None:
    proxy.refuse = refusal
    with pytest.raises(StorageError, match="credentials have expired") as error:
        Client(f"s3://{bucket.name}").get("a")
    assert error.value.exit_code == 6
    assert "it resumes where it stopped" in error.value.hint
    assert SECRET not in str(error.value)
    assert proxy.num_requests == 2


def test_who_may_not_read_is_told_where_keys_come_from(bucket: Any, proxy: Chaos) -> None:
    proxy.refuse = (403, "AccessDenied")
    with pytest.raises(UserError, match="the object store denied access") as error:
        Client(f"s3://{bucket.name}").get("a")
    assert error.value.exit_code == 2
    assert "AWS_PROFILE" in error.value.hint
    assert "--anonymous" in error.value.hint


def test_expired_credentials_are_known_where_an_answer_has_no_text(
    bucket: Any, proxy: Chaos
) -> None:
    proxy.refuse = (400, "ExpiredToken")
    with pytest.raises(StorageError, match="credentials have expired"):
        Client(f"s3://{bucket.name}").head("a")


def test_who_was_let_in_before_may_have_credentials_that_expired(bucket: Any, proxy: Chaos) -> None:
    client = Client(f"s3://{bucket.name}")
    assert client.get("a") is None
    client.put("a", b"")
    proxy.refuse = (403, "AccessDenied")
    with pytest.raises(StorageError, match="the object store denied access") as error:
        client.get("a")
    assert error.value.exit_code == 6
    with pytest.raises(UserError, match="the object store denied access"):
        list(client.list())
    doing = admission_environment()["TOKENMILL_LET_IN"].split()
    assert {f"read:s3://{bucket.name}", f"write:s3://{bucket.name}"} <= set(doing)


def test_a_store_that_is_busy_for_ever_ends_in_an_error(
    bucket: Any, proxy: Chaos, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "MAX_RETRIES", 2)
    proxy.refuse = (503, "SlowDown")
    with pytest.raises(StorageError, match="the object store gave an unexpected answer") as error:
        Client(f"s3://{bucket.name}").get("a")
    assert "503 Service Unavailable: SlowDown" in error.value.why
    assert "it resumes where it stopped" in error.value.hint
    assert proxy.num_requests == 3


@pytest.fixture
def profile(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A profile of ~/.aws in place of the variables."""
    file = tmp_path / "credentials"
    file.write_text(f"[work]\naws_access_key_id = AKIATEST\naws_secret_access_key = {SECRET}\n")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_PROFILE", "work")
    return monkeypatch


def test_a_profile_is_used(bucket: Any, profile: pytest.MonkeyPatch) -> None:
    client = Client(f"s3://{bucket.name}")
    client.put("a", b"hello")
    assert client.get("a") == b"hello"


def test_a_profile_that_does_not_exist_is_a_mistake(
    bucket: Any, profile: pytest.MonkeyPatch
) -> None:
    profile.setenv("AWS_PROFILE", "wrok")
    with pytest.raises(UserError, match="cannot use the profile 'wrok'"):
        Client(f"s3://{bucket.name}").get("a")


def test_the_library_may_be_missing(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UserError, match="cannot use object stores") as error:
        Client(f"s3://{bucket.name}").get("a")
    assert error.value.hint == install_command("cloud")


@pytest.mark.parametrize(
    "endpoint", ["host:9000", "https://me:hunter2@host", "https://h/?k=hunter2"]
)
def test_an_endpoint_is_an_address_without_secrets(endpoint: str) -> None:
    with pytest.raises(UserError, match="the endpoint is not valid") as error:
        set_options(endpoint=endpoint)
    assert "hunter2" not in str(error.value)


def test_a_forked_process_is_told_instead_of_hanging(bucket: Any) -> None:
    program = f"""
import os
from tokenmill.store.cloud.client import Client
client = Client("s3://{bucket.name}")
client.put("a", b"hello")
if os.fork() == 0:
    try:
        client.get("a")
    except OSError as error:
        print(error.what, flush=True)
    os._exit(0)
os.wait()
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout == "object stores cannot be used in a forked process\n", done.stderr


def test_no_thread_outlives_an_interpreter_that_ends_while_a_store_is_asked(
    bucket: Any, proxy: Chaos
) -> None:
    proxy.slow_ms = 5000
    program = f"""
from tokenmill.store.cloud.client import Client
client = Client("s3://{bucket.name}")
pending = [client.begin_range("a", 0, 9) for _ in range(20)]
"""
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")

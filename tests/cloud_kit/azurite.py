"""Azure's blobs by Azurite, from npm; skipped by name where it is not installed."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from hmac import digest
from pathlib import Path

import pytest

ACCOUNT = "devstoreaccount1"
KEY = (  # printed in Azurite's own documentation
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
CONTAINER = "bucket"


@contextmanager
def azurite(folder: Path) -> Iterator[int]:
    """Serve Azure's blobs with one empty container; the port on 127.0.0.1."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("azurite-blob is not installed: `make cluster` gets it from npm")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    options = ["--silent", "--skipApiVersionCheck", "--location", str(folder)]
    address = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with subprocess.Popen([program, *options, *address], stdout=subprocess.DEVNULL) as process:
        try:
            _make_container(port)
            yield port
        finally:
            process.terminate()


def azure_environment(port: int) -> dict[str, str]:
    """The variables with which clients find the server on a port, or a proxy in front of it."""
    return {
        "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
        "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{ACCOUNT}",
    }


def _make_container(port: int) -> None:
    """Ask for a container until the server answers.

    https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
    """
    for _ in range(300):
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        no_headers = "\n" * 12
        signed = f"PUT{no_headers}x-ms-date:{date}\nx-ms-version:2021-08-06\n{resource}"
        signature = b64encode(digest(b64decode(KEY), signed.encode(), sha256)).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/{ACCOUNT}/{CONTAINER}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": "2021-08-06",
                "Content-Length": "0",
                "Authorization": f"SharedKey {ACCOUNT}:{signature}",
            },
        )
        with suppress(ConnectionRefusedError, urllib.error.URLError):
            urllib.request.urlopen(request).close()
            return
        time.sleep(0.1)
    raise AssertionError("azurite does not answer")

"""Google Cloud Storage by a small server of ours, a real process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cloud_kit.processes import python_server


@contextmanager
def google() -> Iterator[int]:
    """Serve every bucket as the same one, empty; the port on 127.0.0.1."""
    with python_server(Path(__file__).with_name("google_server.py")) as port:
        yield port


def google_environment(port: int) -> dict[str, str]:
    """The variables with which clients find the server on a port, or a proxy in front of it."""
    address = f"http://127.0.0.1:{port}"
    key = {"gcs_base_url": address, "disable_oauth": True}
    key |= dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
    return {"STORAGE_EMULATOR_HOST": address, "GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key)}

"""A quick check whether a host can be reached, before requests to it are retried for minutes.

It is worth waiting for a slow or busy server. But if no connection is possible within a few
seconds, the address is most likely wrong or the network is down, and the user should know soon.
"""

from __future__ import annotations

import socket
import threading
import time
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from tokenmill.core.errors import StorageError
from tokenmill.core.paths import redacted
from tokenmill.store.cloud.loop import in_background

CONNECT_SECONDS = 3.0
PAUSES = (1.0, 2.0)
MAX_SECONDS = 5.0
"""Seconds after which no new attempt starts; the whole check takes under 10 seconds."""
_PORTS = {"http": 80, "https": 443}

_lock = threading.Lock()
_reached: set[str] = set()
_failed: dict[str, tuple[float, str]] = {}
"""Unreachable addresses with the time and the reason, so that only one request tries."""


def require_reachable(address: str, where: str, hint: str) -> None:
    """Raise a StorageError if the host of `address`, or its proxy, cannot be reached.

    Each address is tried once per process.
    """
    with _lock:
        if address in _reached:
            return
        failed_at, why = _failed.get(address, (0.0, ""))
        if not why or time.monotonic() - failed_at > 2 * MAX_SECONDS:
            why = _tried(address)
        if not why:
            _reached.add(address)
            return
        _failed[address] = time.monotonic(), why
    raise StorageError("cannot reach a host", where=where, why=why, hint=hint)


def _tried(address: str) -> str:
    """Return why a host cannot be reached, or "" if it can."""
    host, port = _host_of(address)
    start = time.monotonic()
    why = ""
    for pause in (*PAUSES, 0.0):
        why = _failure_to_connect(host, port)
        if not why or time.monotonic() - start > MAX_SECONDS:
            break
        time.sleep(pause)
    is_proxy = host != urlsplit(address).hostname
    shown = f"{redacted(address)}: " if is_proxy else ""
    return f"{shown}no connection to {host}:{port} ({why})" if why else ""


def _host_of(address: str) -> tuple[str, int]:
    """Return the host and port of an address, or of the proxy for it."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(host):
        parts = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
        host = parts.hostname or host
    return host, parts.port or _PORTS.get(parts.scheme, 443)


def _failure_to_connect(host: str, port: int) -> str:
    """Return why no connection can be made, or "" if one can.

    Name lookup has no timeout, and a name may have many addresses, so a thread tries and is
    abandoned after a time limit.
    """

    def connect() -> None:
        socket.create_connection((host, port), CONNECT_SECONDS).close()

    attempt = in_background(connect, "reach")
    try:
        attempt.result(CONNECT_SECONDS)
    except (OSError, UnicodeError) as error:
        return str(error) if attempt.done() else f"no answer within {CONNECT_SECONDS:.0f} s"
    return ""

"""Where an answer of the Hub may lead: HTTP libraries follow a redirect into any network.

A Hub (or a mirror, or whoever can answer in its name) could otherwise have requests sent to
services that only this machine can reach.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Gives IPv4 addresses to machines that have IPv6 only (RFC 6052)."""


def objection_to_redirect(source: Any, target: Any, endpoint: str) -> str:
    """Why a redirect is not followed, "" if it may be.

    Args:
        source: the URL that answered, an object with `scheme` and `host`, as `target`.
        target: the URL that the answer names.
        endpoint: the address of the Hub: if it is itself in a private network, so may others be.
    """
    if source.scheme == "https" and target.scheme != "https":
        return f"it redirects from https to {target.scheme} ({target.host})"
    if is_public(target.host):
        return ""
    if not is_public(urlsplit(endpoint).hostname or ""):
        return ""
    return f"it redirects to an address that is not public ({target.host})"


def is_public(host: str) -> bool:
    """Whether all addresses of a host can be reached from anywhere.

    True for a name that cannot be resolved here: then only a proxy can, or the request fails.
    """
    try:
        found = socket.getaddrinfo(host.rstrip("."), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return True
    return all(_is_public(ipaddress.ip_address(entry[4][0])) for entry in found)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (address.is_multicast or address.is_reserved)

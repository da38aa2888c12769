"""Checks of redirects, because HTTP libraries follow a redirect into any network.

Without them, the Hub, a mirror or an impostor could direct requests to services that only this
machine can reach.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""Prefix of IPv4 addresses for machines that only have IPv6 (RFC 6052)."""


def objection_to_redirect(source: Any, target: Any, endpoint: str) -> str:
    """Return why a redirect must not be followed, or "" if it may.

    Args:
        source: the URL that redirects, an object with `scheme` and `host`.
        target: the URL that it redirects to, an object with `scheme` and `host`.
        endpoint: the address of the Hub. If it is in a private network, targets may be, too.
    """
    if source.scheme == "https" and target.scheme != "https":
        return f"it redirects from https to {target.scheme} ({target.host})"
    if is_public(target.host):
        return ""
    if not is_public(urlsplit(endpoint).hostname or ""):
        return ""
    return f"it redirects to an address that is not public ({target.host})"


def is_public(host: str) -> bool:
    """Return whether all addresses of a host are public.

    True for a name that this machine cannot resolve: either a proxy does, or the request fails.
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

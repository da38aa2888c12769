"""Options for object stores, passed to all processes of a run in environment variables.

    TOKENMILL_ENDPOINT    the address of an S3-compatible or other custom store
    TOKENMILL_ANONYMOUS   1: use no credentials and do not sign requests

The clouds' own variables also apply. None of these is secret.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from tokenmill.core.errors import UserError
from tokenmill.core.paths import redacted

ENDPOINT = "TOKENMILL_ENDPOINT"
ANONYMOUS = "TOKENMILL_ANONYMOUS"
ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The clouds' own variables for the endpoint, by scheme; the first one that is set wins."""


def set_options(*, endpoint: str | None = None, anonymous: bool = False) -> None:
    """Set options for this process and those that it starts later.

    Raises:
        UserError: the endpoint is not an address or contains a password.
    """
    if endpoint is not None:
        _checked(endpoint)
        os.environ[ENDPOINT] = endpoint
    if anonymous:
        os.environ[ANONYMOUS] = "1"


def endpoint_of(scheme: str) -> str:
    """Return the custom address for a scheme, or "" for the cloud's own.

    Raises:
        UserError: the endpoint is not an address or contains a password.
    """
    found = (os.environ.get(name, "") for name in (ENDPOINT, *ENDPOINTS.get(scheme, ())))
    endpoint = next(filter(None, found), "")
    return _checked(endpoint) if endpoint else ""


def is_anonymous() -> bool:
    """Return whether requests are sent without credentials."""
    return os.environ.get(ANONYMOUS, "") not in ("", "0")


def _checked(endpoint: str) -> str:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        hint = "give https://HOST or http://HOST:PORT"
        raise UserError("the endpoint is not valid", where=redacted(endpoint), hint=hint)
    if "@" in parts.netloc or parts.query:
        why = "it must not contain a password or a query"
        raise UserError("the endpoint is not valid", where=redacted(endpoint), why=why)
    return endpoint.rstrip("/")

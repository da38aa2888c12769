"""What the user says of stores, in the environment: all processes of a run inherit it.

    TOKENMILL_ENDPOINT    the address of a store that is not the cloud's own
    TOKENMILL_ANONYMOUS   1: no credentials are looked for, and requests are not signed

The cloud's own variables hold as well. Nothing here is a secret.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from tokenmill.errors import UserError
from tokenmill.paths import redacted

ENDPOINT = "TOKENMILL_ENDPOINT"
ANONYMOUS = "TOKENMILL_ANONYMOUS"
ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The clouds' own variables for the same, by scheme; the first that is set counts."""


def set_options(*, endpoint: str | None = None, anonymous: bool = False) -> None:
    """Store what the user says, for this process and those that it starts from now on.

    Raises:
        UserError: the endpoint is not an address, or holds a password.
    """
    if endpoint is not None:
        _checked(endpoint)
        os.environ[ENDPOINT] = endpoint
    if anonymous:
        os.environ[ANONYMOUS] = "1"


def endpoint_of(scheme: str) -> str:
    """The address of the stores of a scheme, "" for the cloud's own.

    Raises:
        UserError: what is set is not an address, or holds a password.
    """
    found = (os.environ.get(name, "") for name in (ENDPOINT, *ENDPOINTS.get(scheme, ())))
    endpoint = next(filter(None, found), "")
    return _checked(endpoint) if endpoint else ""


def is_anonymous() -> bool:
    """Whether requests are not to be signed."""
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

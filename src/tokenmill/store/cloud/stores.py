"""Opening stores with the library `obstore` and the usual credentials of each cloud.

    s3   the variables AWS_*; profiles of ~/.aws through boto3; roles of EC2, ECS and EKS
    gs   GOOGLE_APPLICATION_CREDENTIALS and the other GOOGLE_*; gcloud's login; roles
    az   AZURE_STORAGE_*, a connection string; service principals and managed identities

Options of tokenmill's own are in environment variables, for all processes of a run:

    TOKENMILL_ENDPOINT    the address of an S3-compatible or other custom store
    TOKENMILL_ANONYMOUS   1: use no credentials and do not sign requests

A store must not be used in a process that was forked after its first use: its threads are gone.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.core.paths import redacted
from tokenmill.store.cloud.names import WEB, ObjectName

ENDPOINT = "TOKENMILL_ENDPOINT"
ANONYMOUS = "TOKENMILL_ANONYMOUS"
ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The clouds' own variables for the endpoint, by scheme; the first one that is set wins."""
RETRY_SECONDS = 120
"""Time during which a failing request is retried, for example while a server is replaced."""
MAX_RETRIES = 12
CONNECT_SECONDS = 10
READ_SECONDS = 60
"""Time without a byte after which a read fails."""

_AZURE = {
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"),
    "sas_key": ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
}
"""Variables of Azure's own tools (second names), which the library does not read."""
_AZURE_CONNECTION = {
    "AccountName": "account_name",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_key",
    "BlobEndpoint": "endpoint",
}


def open_bucket(name: ObjectName) -> Any:
    """Open the store of a location, without sending a request; paths are relative to `name`.

    Raises:
        UserError: `obstore` is not installed, or credentials cannot be used.
    """
    try:
        from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store
    except ImportError as error:
        why = "object stores need the package obstore, which is not installed"
        raise UserError(
            "cannot use object stores", where=str(name), why=why, hint=install_command("cloud")
        ) from error
    endpoint = "" if name.scheme in WEB else endpoint_of(name.scheme)
    given: dict[str, Any] = {
        "client_options": {
            "allow_http": name.scheme == "http" or endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "read_timeout": timedelta(seconds=READ_SECONDS),
            "timeout": timedelta(seconds=10 * RETRY_SECONDS),
        },
        "retry_config": {
            "max_retries": MAX_RETRIES,
            "retry_timeout": timedelta(seconds=RETRY_SECONDS),
        },
    }
    if name.scheme in WEB:
        return HTTPStore.from_url(f"{name}/", **given)
    given["prefix"] = name.key or None
    if is_anonymous():
        given["skip_signature"] = True
    if name.scheme == "gs":
        if endpoint:
            given["base_url"] = endpoint
        return GCSStore(name.bucket, **given)
    if name.scheme == "az":
        given |= _azure_config() | ({"endpoint": endpoint} if endpoint else {})
        return AzureStore(name.bucket, **given)
    if endpoint:
        given["endpoint"] = endpoint
    if not is_anonymous():
        given |= _profile(name)
    return S3Store(name.bucket, **given)


def _azure_config() -> dict[str, str]:
    """Return the variables of Azure's own tools under the library's names."""
    config: dict[str, str] = {}
    parts = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    for key, equals, value in (part.partition("=") for part in parts):
        if equals and key in _AZURE_CONNECTION:
            config[_AZURE_CONNECTION[key]] = value
    for key, variables in _AZURE.items():
        value = next(filter(None, map(os.environ.get, variables)), "")
        if value:
            config[key] = value
    return config


def _profile(name: ObjectName) -> dict[str, Any]:
    """Return credentials and region of a profile in ~/.aws, if the environment has none."""
    profile = os.environ.get("AWS_PROFILE", "")
    if os.environ.get("AWS_ACCESS_KEY_ID") or not (profile or _has_aws_files()):
        return {}
    try:
        import boto3.session
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        if not profile:
            return {}  # the machine may have a role
        why = "profiles in ~/.aws need the package boto3, which is not installed"
        hint = "pip install boto3, or export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        raise UserError(
            f"cannot use the profile {profile!r}", where=str(name), why=why, hint=hint
        ) from error
    try:
        session = boto3.session.Session()
        if session.get_credentials() is None:
            return {}
        given: dict[str, Any] = {"credential_provider": Boto3CredentialProvider(session)}
    except BotoCoreError as error:
        hint = "check ~/.aws/config, or log in again (aws sso login)"
        what = f"cannot use the profile {profile!r}" if profile else "cannot use ~/.aws"
        raise UserError(what, where=str(name), why=str(error), hint=hint) from error
    if session.region_name:
        given["region"] = session.region_name
    return given


def _has_aws_files() -> bool:
    home = Path("~/.aws").expanduser()
    files = (
        Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials")),
        Path(os.environ.get("AWS_CONFIG_FILE", home / "config")),
    )
    return any(file.is_file() for file in files)


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

"""Opening stores with the library `obstore` and the usual credentials of each cloud.

    s3   the variables AWS_*; profiles of ~/.aws through boto3; roles of EC2, ECS and EKS
    gs   GOOGLE_APPLICATION_CREDENTIALS and the other GOOGLE_*; gcloud's login; roles
    az   AZURE_STORAGE_*, a connection string; service principals and managed identities

A store must not be used in a process that was forked after its first use: its threads are gone.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.store.cloud.names import WEB, ObjectName
from tokenmill.store.cloud.options import endpoint_of, is_anonymous

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


def open_store(name: ObjectName) -> Any:
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

"""Translation of store failures to tokenmill's errors, without keys or signed addresses.

Some stores refuse expired and wrong credentials in the same way. To tell them apart, the requests
that a store has allowed are recorded; processes that a run starts inherit the record.
"""

from __future__ import annotations

import os
import re
from typing import Literal

from tokenmill.core.errors import (
    InputChangedError,
    MissingObjectError,
    StorageError,
    TokenmillError,
    UserError,
    one_line,
)
from tokenmill.store.cloud.names import ObjectName

Doing = Literal["read", "write", "list", "delete"]

VARIABLE = "TOKENMILL_LET_IN"

_known = set(os.environ.get(VARIABLE, "").split())
MAX_WHY = 400
RESUMABLE = "run the same command again later; it resumes where it stopped"

_EXPIRED = re.compile(r"expired|TokenRefreshRequired|not valid in the specified time", re.I)
_SILENT = re.compile(r"HEAD .*status code: 400 Bad Request:\s*$", re.DOTALL)
"""S3 refuses expired credentials with 400, and an answer to HEAD has no text that says why."""
_NAMES_NOTHING = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.I)
_QUERY = re.compile(r"\?[^\s\"')>]*")
_CODE = re.compile(r"<Code>([^<]*)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_STATUS = re.compile(r"status code: (\d{3} [A-Za-z ]*[A-Za-z])")
_SECRET_VARIABLES = re.compile(r"SECRET|TOKEN|KEY|PASSWORD|CONNECTION_STRING|SIGNATURE|CREDENTIALS")
_SHORT = 8
"""Values of secret variables shorter than this are not masked: they may be ordinary words."""


def is_expired(error: BaseException) -> bool:
    """Return whether a store refuses credentials that have or may have expired."""
    is_generic = type(error).__name__ == "GenericError"
    return _is_refusal(error) or (is_generic and _says_expired(_text(error)))


def _says_expired(text: str) -> bool:
    return bool(_EXPIRED.search(text) or _SILENT.search(text))


def _is_refusal(error: BaseException) -> bool:
    """Return whether a store denied access; for listings, the library has no class for it."""
    status = _STATUS.search(_text(error))
    named = type(error).__name__ in ("PermissionDeniedError", "UnauthenticatedError")
    return named or (status is not None and status[1][:3] in ("401", "403"))


def is_broken_off(error: BaseException) -> bool:
    """Return whether an answer was cut off; the library retries this for objects only."""
    return type(error).__name__ == "GenericError" and "response body" in _text(error)


def translated(
    error: BaseException, name: ObjectName, *, was_let_in: bool = False
) -> TokenmillError:
    """Return the error to show for an exception of `obstore` about an object.

    `was_let_in` is whether the store has allowed such a request in this run before.
    """
    kind, text, where = type(error).__name__, _text(error), str(name)
    why = _why(text)
    code = _CODE.search(text)
    if isinstance(error, FileNotFoundError) and not (code and _NAMES_NOTHING.search(code[1])):
        return MissingObjectError("cannot find an object", where=where, why=why)
    if kind == "PreconditionError":
        return input_changed(name, "the object has been replaced since it was listed")
    if _says_expired(text):
        hint = "renew your credentials and run the same command again; it resumes where it stopped"
        return StorageError("credentials have expired", where=where, why=why, hint=hint)
    if _is_refusal(error):
        if was_let_in:
            hint = "earlier requests were allowed: renew your credentials, or ask for access to "
            hint += "this object; then run the same command again: it resumes where it stopped"
            return StorageError("the object store denied access", where=where, why=why, hint=hint)
        return UserError(
            "the object store denied access", where=where, why=why, hint=_credentials_hint(name)
        )
    if _NAMES_NOTHING.search(text):
        hint = "check the name of the bucket and the endpoint"
        return UserError("cannot find a bucket", where=where, why=why, hint=hint)
    if "redirect" in text and name.scheme == "s3":
        hint = "set AWS_REGION to the region of the bucket"
        return UserError("a bucket is in another region", where=where, why=why, hint=hint)
    if isinstance(error, ValueError) or "object with invalid path" in text:
        return UserError("this name is not valid for an object", where=where, why=why)
    if _has_no_credentials(text):
        return UserError(
            "cannot find credentials for the object store",
            where=where,
            why=why,
            hint=_credentials_hint(name),
        )
    return StorageError(
        "the object store gave an unexpected answer", where=where, why=why, hint=RESUMABLE
    )


def input_changed(name: ObjectName, why: str) -> InputChangedError:
    """Return the error for an object that was overwritten after it was listed."""
    return InputChangedError(
        "an input changed during the build",
        where=str(name),
        why=why,
        hint="once it no longer changes, build again into a new location",
    )


def _has_no_credentials(text: str) -> bool:
    """Return whether the library found no credentials and no role of the machine."""
    asked = (
        "169.254.169.254",
        "metadata.google.internal",
        "latest/api/token",
        "security-credentials",
    )
    return any(each in text for each in asked) or "Unable to open service account" in text


def _credentials_hint(name: ObjectName) -> str:
    variables = {
        "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (with boto3)",
        "gs": "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login",
        "az": "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or ..._SAS_TOKEN",
    }
    if name.scheme not in variables:
        return "tokenmill sends no credentials to web servers; give a public address"
    return f"{variables[name.scheme]}; for public data, add --anonymous"


def _text(error: BaseException) -> str:
    return str(error).partition("\n\nDebug source")[0]


def _why(text: str) -> str:
    """Return the store's explanation in one short line without secrets."""
    status, code, message = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
    if status and code:
        said = f"{status[1]}: {code[1]}" + (f", {message[1]}" if message else "")
    elif status and "<" in text:
        said = status[1]
    else:
        said = text
    said = _QUERY.sub("?***", one_line(said.replace("\n", " ")))
    for variable, value in os.environ.items():
        if _SECRET_VARIABLES.search(variable.upper()) and len(value) >= _SHORT:
            said = said.replace(value, "***")
    return said if len(said) <= MAX_WHY else said[:MAX_WHY] + "..."


def note(store: str, doing: Doing) -> None:
    """Record that a store has allowed a request of this kind."""
    _known.add(f"{doing}:{store}")


def was_let_in(store: str, doing: Doing) -> bool:
    """Return whether a store has allowed a request of this kind in this run."""
    return f"{doing}:{store}" in _known


def has_answered(store: str) -> bool:
    """Return whether a store has allowed any request in this run."""
    return any(known.endswith(f":{store}") for known in _known)


def admission_environment() -> dict[str, str]:
    """Return environment variables that pass the record to a new process, without secrets."""
    return {VARIABLE: " ".join(sorted(_known))}

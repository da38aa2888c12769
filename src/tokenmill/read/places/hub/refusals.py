"""Errors for requests that the Hub refuses, with hints."""

from __future__ import annotations

import importlib.util
from typing import Any

from tokenmill.core.errors import StorageError, UserError
from tokenmill.core.installed import install_command
from tokenmill.read.places.hub.names import is_commit, parse_hub_name

BUSY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
TOKEN_HINT = "log in with `hf auth login`, or set HF_TOKEN"  # noqa: S105 - no token

UNREACHABLE_HINT = (
    "check the network, and HF_ENDPOINT if it is set; HF_HUB_OFFLINE=1 uses only cached files"
)


class MissingEntryError(UserError):
    """A file or folder does not exist in the dataset."""


def require_library() -> None:
    """Raise a UserError if `huggingface_hub` is not installed."""
    if importlib.util.find_spec("huggingface_hub") is None:
        why = "the library huggingface_hub is not installed"
        hint = install_command("hf")
        raise UserError("cannot read datasets on the Hub", why=why, hint=hint)


def offline(where: str) -> UserError:
    """Return the error for a request that HF_HUB_OFFLINE forbids."""
    pinned = is_commit(parse_hub_name(where).revision)
    return UserError(
        "an input is not in the cache, and offline mode is on",
        where=where,
        why="HF_HUB_OFFLINE is set",
        hint="unset it, or give another cache with --cache-dir"
        if pinned
        else "unset it, or give a commit that is in the cache, as in @0123...cdef",
    )


def refusal(response: Any, where: str) -> UserError | StorageError:
    """Return the error for an answer that a retry would not change.

    X-Error-Code has the exact meaning; a plain 401 can also mean "not found".
    """
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    name = parse_hub_name(where)
    page = f"https://huggingface.co/datasets/{name.repo}"
    if code == "GatedRepo":
        hint = f"accept its terms at {page}, then {TOKEN_HINT}"
        return UserError("the dataset is gated", where=where, why=f"status {status}", hint=hint)
    if code == "RevisionNotFound":
        hint = "check the revision after the @"
        why = f"the dataset has no revision {name.revision!r}"
        return UserError("an input does not exist", where=where, why=why, hint=hint)
    if code == "EntryNotFound":
        why = f"the dataset has no file or folder {name.path!r}"
        hint = f"see {page}"
        return MissingEntryError("an input does not exist", where=where, why=why, hint=hint)
    if status in (401, 403):
        message = response.headers.get("X-Error-Message", "")[:200]
        message = "".join(filter(str.isprintable, message))  # no control characters on a terminal
        return UserError(
            "an input does not exist, or you have no access to it",
            where=where,
            why=f"status {status}{': ' + message if message else ''}",
            hint=f"check the spelling; if it is private or gated, accept its terms at {page} and "
            f"{TOKEN_HINT}",
        )
    if status == 404:
        why = "the Hub has no dataset with this name"
        return UserError("an input does not exist", where=where, why=why, hint=f"see {page}")
    return StorageError("the Hub refused a request", where=where, why=f"status {status}")

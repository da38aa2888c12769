"""Fetch the tokenizer of a model on the Hub, with all files from one commit."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command

if TYPE_CHECKING:
    from huggingface_hub import HfApi

TOKENIZER_NAME = "tokenizer.json"
CONFIG_NAME = "tokenizer_config.json"
CHAT_TEMPLATE_NAME = "chat_template.jinja"
TOKENIZER_PATTERNS = ["*.json", "*.txt", "*.model", "*.tiktoken", CHAT_TEMPLATE_NAME]
"""The files to fetch for a model without tokenizer.json: no weights, no code, no subfolders."""

MAIN = "main"
_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?(?:@[^@\s]+)?")
_LOGIN = "log in with `hf auth login`, or set HF_TOKEN"


def is_hub_model(name: str) -> bool:
    """Whether a name has the form [OWNER/]NAME[@REVISION]."""
    return _NAME.fullmatch(name) is not None


def fetch_tokenizer(spec: str, max_bytes: int) -> tuple[Path, str]:
    """Fetch the tokenizer.json of a model, or the files from which `transformers` builds one.

    Files are kept in the cache of huggingface_hub, and read from there without a network or with
    HF_HUB_OFFLINE. The path in that cache is returned, and the commit of the files. `spec` is
    [OWNER/]NAME[@REVISION]; `max_bytes` limits all files of a folder.

    Raises:
        UserError: the model does not exist, access is denied, or it has no tokenizer.
    """
    if importlib.util.find_spec("huggingface_hub") is None:
        why = "huggingface_hub is not installed"
        raise _not_found(spec, why, install_command("hf"))
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        EntryNotFoundError,
        HTTPError,
        RemoteEntryNotFoundError,
    )

    name, _, revision = spec.partition("@")
    hub = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    refusal = _refusal(hub, name, revision or MAIN)
    get = partial(hub.hf_hub_download, name, local_files_only=refusal is not None)
    try:
        path = _first_of(get, revision or MAIN)
        commit = path.parent.name
        if path.name == CONFIG_NAME:
            return _folder(hub, spec, commit, max_bytes, refusal is not None), commit
        for extra in (CONFIG_NAME, "config.json", "special_tokens_map.json", CHAT_TEMPLATE_NAME):
            _get_optional(get, extra, commit)
    except UserError:
        raise
    except RemoteEntryNotFoundError as error:
        raise _not_found(spec, f"the model has no {TOKENIZER_NAME} and no {CONFIG_NAME}") from error
    except EntryNotFoundError as error:
        why, hint = _reason(refusal or error.__cause__ or error, name, revision)
        raise _not_found(spec, f"{why}, and the cache does not have it", hint) from error
    except (HTTPError, OSError, ValueError) as error:
        raise _not_found(spec, *_reason(error, name, revision)) from error
    return path, commit


def _first_of(get: Any, revision: str) -> Path:
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(get(TOKENIZER_NAME, revision=revision))
    except EntryNotFoundError:
        return Path(get(CONFIG_NAME, revision=revision))


def _get_optional(get: Any, file: str, commit: str) -> None:
    """Fetch a file that may be missing; all other failures are raised."""
    from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError

    offline = get.keywords["local_files_only"]
    lacking = LocalEntryNotFoundError if offline else RemoteEntryNotFoundError
    with contextlib.suppress(lacking):
        get(file, revision=commit)


def _folder(hub: HfApi, spec: str, commit: str, max_bytes: int, offline: bool) -> Path:
    name = spec.partition("@")[0]
    wanted: dict[str, Any] = {
        "revision": commit,
        "allow_patterns": TOKENIZER_PATTERNS,
        "ignore_patterns": ["*/*"],
        "local_files_only": offline,
    }
    if not offline:
        files = hub.snapshot_download(name, dry_run=True, **wanted)
        num_bytes = sum(file.file_size or 0 for file in files)
        if num_bytes > max_bytes:
            why = f"its files have {num_bytes:,} bytes; the limit is {max_bytes:,}"
            raise UserError("the tokenizer is too large", where=spec, why=why)
    return Path(hub.snapshot_download(name, **wanted))


def _refusal(hub: HfApi, name: str, revision: str) -> Exception | None:
    """Return why the Hub refuses a model. This is one try; a download would retry for 30 s."""
    from huggingface_hub import constants
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        hub.model_info(name, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT)
    except (HTTPError, OSError, ValueError) as error:
        return error
    return None


def _reason(error: BaseException, name: str, revision: str) -> tuple[str, str]:
    """Return why the Hub refuses a file, and a hint."""
    from huggingface_hub import errors

    message = (str(error).strip() or type(error).__name__).splitlines()[0]
    match error:
        case errors.OfflineModeIsEnabled():
            return "HF_HUB_OFFLINE is set", "unset it, or give the path of a tokenizer.json"
        case errors.GatedRepoError():
            hint = f"accept its terms at https://huggingface.co/{name}, then {_LOGIN}"
            return "the model is gated", hint
        case errors.RevisionNotFoundError():
            return f"the model has no revision {revision!r}", "check the name after the @"
        case errors.RepositoryNotFoundError():
            hint = f"check the spelling; if the model is private, {_LOGIN}"
            return "the Hub has no such model", hint
        case errors.HFValidationError():
            return f"the name is not valid ({message.removesuffix('.')})", ""
        case errors.HfHubHTTPError():
            return f"the Hub refused the request ({message})", ""
    return f"the Hub could not be reached ({message})", ""


def _not_found(spec: str, why: str, hint: str = "") -> UserError:
    return UserError(
        "cannot find the tokenizer",
        where=spec,
        why=f"no such file or folder; as a model on the Hub: {why}",
        hint=hint or "check the name, or give the path of a tokenizer.json or its folder",
    )

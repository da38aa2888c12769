"""Requests to the Hub: commits of revisions, file listings, and byte ranges of files.

The library `huggingface_hub` provides session, token and endpoint, and follows redirects, without
the token if they lead to another host. Its own listing is not used, because it sends the token to
any host that an answer names as that of the next page.

The protocol is that of https://huggingface.co/docs/hub/api and of `resolve` addresses. The first
answer has the commit (X-Repo-Commit) and the digest (X-Linked-Etag, else ETag) of a file, and may
redirect to another host.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from tokenmill.core.errors import (
    DataError,
    InputChangedError,
    StorageError,
    TokenmillError,
    UserError,
)
from tokenmill.core.installed import install_command
from tokenmill.read.places.hub.names import HubFile, HubName, is_commit, parse_hub_name
from tokenmill.read.range_file import ReadAheadFile
from tokenmill.store.cloud.loop import in_background
from tokenmill.store.cloud.reach import require_reachable

LOGGER = logging.getLogger(__name__)
MAX_PAGES = 10_000
"""Most pages of a listing. A page of the Hub has up to a thousand entries, or none."""
BUSY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_FAILURES = 8
MAX_FIRST_FAILURES = 4
"""Fewer retries at the start, when a user is waiting and no work can be lost."""
MAX_PAUSE_SECONDS = 60.0
MAX_ASKED_SECONDS = 900.0
"""The longest pause that a server may request; for a longer one, the request fails."""
CHECK_SECONDS = 0.2
TOKEN_HINT = "log in with `hf auth login`, or set HF_TOKEN"  # noqa: S105 - no token
NETWORK_HINT = "check the network, and HF_ENDPOINT if it is set"
UNREACHABLE_HINT = f"{NETWORK_HINT}; HF_HUB_OFFLINE=1 uses only cached files"

Check = Callable[[], None]
"""Called during a pause; raises to stop the work."""
Refusal = Callable[[Any, str], TokenmillError]
"""Makes the error for an answer that a retry would not change, from it and the name."""
T = TypeVar("T")


class MissingEntryError(UserError):
    """A file or folder does not exist in the dataset."""


class _Entry(msgspec.Struct):
    """An entry of a listing."""

    type: str
    path: str
    oid: str = ""
    size: int = 0
    lfs: dict[str, Any] | None = None


class _Revision(msgspec.Struct):
    sha: str


def require_library() -> None:
    """Raise a UserError if `huggingface_hub` is not installed."""
    if importlib.util.find_spec("huggingface_hub") is None:
        why = "the library huggingface_hub is not installed"
        hint = install_command("hf")
        raise UserError("cannot read datasets on the Hub", why=why, hint=hint)


def endpoint() -> str:
    """Return the address of the Hub, the only host that gets the token.

    Raises:
        UserError: HF_ENDPOINT is not the address of a server.
    """
    from huggingface_hub import constants

    address = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
    if not address.startswith(("https://", "http://")):
        why, hint = "it does not begin with https:// or http://", "correct it, or unset it"
        raise UserError("HF_ENDPOINT is not an address", why=why, hint=hint)
    return address


def commit_of(name: HubName) -> str:
    """Return the current commit of a revision.

    Raises:
        UserError: the dataset or the revision does not exist, or the user has no access.
        DataError: an answer violates the protocol.
        StorageError: the Hub does not answer for a long time.
    """
    place = f"/api/datasets/{name.repo}/revision/{quote(name.revision, safe='')}"
    commit: str = _decoded(_answer(place, {}, str(name)), _Revision, str(name)).sha
    if not is_commit(commit):
        raise _broken(str(name), f"the commit is {commit!r}")
    return commit


def files_in(name: HubName, commit: str, folder: str, *, recursive: bool) -> list[HubFile]:
    """Return the files in a folder of a dataset at a commit, sorted by path.

    Raises:
        MissingEntryError: the folder does not exist.
        TokenmillError: as for `commit_of`.
    """
    where = str(replace(name, path=folder))
    place = f"/api/datasets/{name.repo}/tree/{commit}"
    place += f"/{quote(folder, safe='')}" if folder else ""
    parameters = {"recursive": str(recursive).lower(), "expand": "false"}
    files: list[HubFile] = []
    for _ in range(MAX_PAGES):
        answer = _answer(place, parameters, where)
        entries = _decoded(answer, list[_Entry], where)
        files += [_listed(name, commit, entry) for entry in entries if entry.type == "file"]
        next_page = answer.links.get("next", {}).get("url", "")
        if not next_page:
            return sorted(files, key=lambda file: file.path)
        # Only the parameters: the token must not go to a host that an answer names.
        parameters = dict(parse_qsl(urlsplit(next_page).query))
    raise _broken(where, f"the listing has over {MAX_PAGES:,} pages")


class RemoteFile(ReadAheadFile):
    """A seekable file on the Hub; reads send requests unless the bytes were read ahead.

    Raises:
        InputChangedError: the file has changed since it was listed (raised while reading).
        StorageError: the Hub does not answer for a long time.
    """

    def __init__(self, file: HubFile, check: Check = lambda: None) -> None:
        super().__init__(file.num_bytes, file.origin)
        self._file = file
        self._check = check
        self._closing = threading.Event()
        self._num_ahead = 0

    def close(self) -> None:
        """Start no further requests, and end those that wait for the server."""
        self._closing.set()
        super().close()

    def _fetch(self, start: int, stop: int) -> bytes:
        return tried(partial(self._range, start, stop), self._file.origin, self._check_open)

    def _begin(self, start: int, stop: int) -> Future[bytes]:
        return in_background(partial(self._fetch, start, stop), "read-ahead")

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise InterruptedError
        self._check()

    def _range(self, start: int, stop: int) -> bytes:
        from huggingface_hub import constants
        from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

        file, data = self._file, bytearray()
        address = f"{endpoint()}/datasets/{file.repo}/resolve/{file.commit}/{quote(file.path)}"
        headers = {**_headers(), "Range": f"bytes={start}-{stop - 1}"}
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", address, headers=headers, timeout=timeout) as answer:
            _require_success(answer)
            _require_same(answer, file, start)
            for piece in answer.iter_bytes():
                self._check_open()
                data += piece
                if len(data) > stop - start:  # else the connection can be reused
                    break
        if len(data) < stop - start:
            raise OSError("the answer ended early")
        return bytes(data[: stop - start])


def tried(
    work: Callable[[], T],
    where: str,
    check: Check,
    max_failures: int = MAX_FAILURES,
    refusal: Refusal | None = None,
) -> T:
    """Return the result of `work`, which is repeated while the Hub is busy or does not answer.

    Raises:
        UserError: the Hub refused a request, or HF_HUB_OFFLINE forbids it. `refusal` makes the
            error of an answer; by default, of one for an input.
        StorageError: there were too many failures, or the Hub asks for too long a pause.
        OSError: the local file system failed.
    """
    for failures in itertools.count(1):
        try:
            return work()
        except (TokenmillError, InterruptedError):
            raise
        except Exception as error:
            why, asked_seconds = _reason_to_retry(error, where, refusal or _refusal)
        seconds = max(min(2.0 ** (failures - 1), MAX_PAUSE_SECONDS), asked_seconds)
        if failures > max_failures or seconds > MAX_ASKED_SECONDS:
            asks = f"; the Hub asks to wait {asked_seconds:.0f} s" if asked_seconds > 0 else ""
            raise StorageError(
                "the Hub did not answer",
                where=where,
                why=f"{why}{asks}",
                hint="run the same command again later; it resumes where it stopped",
            )
        LOGGER.warning("%s: %s; retrying in %.0f s", where, why, seconds)
        pause(seconds, check)
    raise AssertionError


def pause(seconds: float, check: Check) -> None:
    """Sleep, and call `check` repeatedly."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        check()
        time.sleep(min(left, CHECK_SECONDS))


def offline(where: str) -> UserError:
    """Return the error for a request that HF_HUB_OFFLINE forbids."""
    hint = "unset it, or give another cache with --cache-dir"
    if not is_commit(parse_hub_name(where).revision):
        hint = "unset it, or give a commit that is in the cache, as in @0123...cdef"
    what = "an input is not in the cache, and offline mode is on"
    return UserError(what, where=where, why="HF_HUB_OFFLINE is set", hint=hint)


def _answer(place: str, parameters: Mapping[str, str], where: str) -> Any:
    """Return a successful answer of the API."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    if not constants.HF_HUB_OFFLINE:
        require_reachable(endpoint(), where, UNREACHABLE_HINT)

    def work() -> Any:
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        answer = get_session().get(
            endpoint() + place, params=parameters or None, headers=_headers(), timeout=timeout
        )
        _require_success(answer)
        return answer

    return tried(work, where, lambda: None, MAX_FIRST_FAILURES)


def _headers() -> dict[str, str]:
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    headers: dict[str, str] = build_hf_headers(library_name="tokenmill")
    return {**headers, "Accept-Encoding": "identity"}  # ranges must refer to the file itself


def _require_success(answer: Any) -> None:
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    if answer.status_code >= 400:
        answer.read()
    hf_raise_for_status(answer)


def _require_same(answer: Any, file: HubFile, start: int) -> None:
    """Check that an answer has the bytes from `start` of the listed file."""
    chain = [*answer.history, answer]
    commits, etags = _values(chain, "X-Repo-Commit"), _values(chain, "X-Linked-Etag")
    etags = etags or _values(chain, "ETag")
    if not commits or not etags:
        raise _broken(file.origin, "it has no commit or no digest; check that HF_ENDPOINT is a Hub")
    first, _, total = answer.headers.get("Content-Range", "").partition("/")
    same = file.commit in commits and file.etag in etags
    if not same or total not in ("", "*", str(file.num_bytes)):
        raise InputChangedError(
            "a file on the Hub changed after it was listed",
            where=file.origin,
            why=f"commit, digest and size are now {*commits, *etags, total}, not "
            f"{file.commit, file.etag, file.num_bytes}",
            hint="run the same command again to list the files again; if the error persists, "
            "check whether a proxy or mirror serves another file",
        )
    if start and not first.startswith(f"bytes {start}-"):
        raise _broken(file.origin, f"requested byte {start}, got {first!r}")


def _values(answers: list[Any], name: str) -> list[str]:
    """Return the values of a header in a chain of answers."""
    found = [answer.headers[name] for answer in answers if name in answer.headers]
    return [value.removeprefix("W/").strip('"') for value in found]


def _listed(name: HubName, commit: str, entry: _Entry) -> HubFile:
    etag = (entry.lfs or {}).get("oid", entry.oid)
    size = (entry.lfs or {}).get("size", entry.size)
    if not isinstance(etag, str) or type(size) is not int:
        raise _broken(str(name), f"digest {etag!r} and size {size!r} of {entry.path!r}")
    file = HubFile(name.repo, commit, entry.path, size, etag)
    if file.problem:
        raise _broken(str(name), file.problem)
    return file


def _decoded(answer: Any, kind: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(where, str(error)) from error


def _broken(where: str, why: str) -> DataError:
    return DataError("invalid answer from the Hub", where=where, why=why)


def _reason_to_retry(error: Exception, where: str, refusal: Refusal) -> tuple[str, float]:
    """Return why a request failed, and the pause in seconds that the Hub asks for.

    Raises the error that it stands for if a retry would not change it.
    """
    from huggingface_hub import errors

    if isinstance(error, errors.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    if isinstance(error, errors.OfflineModeIsEnabled):
        raise offline(where) from error
    if isinstance(error, errors.HfHubHTTPError):
        answer = error.response
        if answer.status_code not in BUSY_STATUSES:
            raise refusal(answer, where) from error
        limit = re.search(r";\s*t=(\d+)", answer.headers.get("RateLimit", ""))
        asked = answer.headers.get("Retry-After", limit[1] if limit else "")
        return f"status {answer.status_code}", float(asked) if asked.isdigit() else 0.0
    if isinstance(error, errors.FileMetadataError):
        raise _broken(where, str(error)) from error
    is_of_disk = isinstance(error, OSError) and error.errno is not None
    if is_of_disk or not isinstance(error, OSError | errors.HTTPError):  # type: ignore[attr-defined]
        raise error
    return f"{type(error).__name__}: {error}", 0.0


def _refusal(answer: Any, where: str) -> UserError | StorageError:
    """Return the error for an answer that a retry would not change.

    X-Error-Code has the exact meaning; a plain 401 can also mean "not found".
    """
    status, code = answer.status_code, answer.headers.get("X-Error-Code", "")
    name = parse_hub_name(where)
    page = f"https://huggingface.co/datasets/{name.repo}"
    what = "an input does not exist"
    if code == "GatedRepo":
        hint = f"accept its terms at {page}, then {TOKEN_HINT}"
        return UserError("the dataset is gated", where=where, why=f"status {status}", hint=hint)
    if code == "RevisionNotFound":
        why = f"the dataset has no revision {name.revision!r}"
        return UserError(what, where=where, why=why, hint="check the revision after the @")
    if code == "EntryNotFound":
        why = f"the dataset has no file or folder {name.path!r}"
        return MissingEntryError(what, where=where, why=why, hint=f"see {page}")
    if status in (401, 403):
        message = answer.headers.get("X-Error-Message", "")[:200]
        message = "".join(filter(str.isprintable, message))  # no control characters on a terminal
        return UserError(
            f"{what}, or you have no access to it",
            where=where,
            why=f"status {status}{': ' + message if message else ''}",
            hint=f"check the spelling; if it is private or gated, accept its terms at {page} and "
            f"{TOKEN_HINT}",
        )
    if status == 404:
        why = "the Hub has no dataset with this name"
        return UserError(what, where=where, why=why, hint=f"see {page}")
    return StorageError("the Hub refused a request", where=where, why=f"status {status}")

"""A client for the Hub: commits of revisions, file listings, and byte ranges of files.

The library `huggingface_hub` provides session, token and endpoint. Its `HfApi` and `HfFileSystem`
are not used: they follow any redirect, send the token to any host that a next-page link names, read
answers of any size into memory, and do not compare files with their commit and digest.

The protocol is that of https://huggingface.co/docs/hub/api and of `resolve` addresses. The first
answer has the commit (X-Repo-Commit) and the digest (X-Linked-Etag, else ETag) of a file, and may
redirect to another host.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from tokenmill.core.errors import DataError, InputChangedError
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.hub.names import HubName, is_commit
from tokenmill.read.places.hub.patience import MAX_FIRST_FAILURES, Check, Patience
from tokenmill.read.places.hub.redirects import objection_to_redirect
from tokenmill.read.places.hub.refusals import (
    BUSY_STATUSES,
    UNREACHABLE_HINT,
    offline,
    refusal,
    require_library,
)
from tokenmill.store.cloud.reach import require_reachable

MAX_ANSWER_BYTES = 1 << 26
MAX_ENTRIES = 1_000_000
MAX_PAGES = 10_000
"""Most pages of a listing. A page of the Hub has up to a thousand entries, or none."""
MAX_REDIRECTS = 10
MAX_REDIRECT_BYTES = 1 << 16


class _File(msgspec.Struct):
    """An entry of a listing."""

    type: str
    path: str
    oid: str = ""
    size: int = 0
    lfs: dict[str, Any] | None = None


class _Revision(msgspec.Struct):
    sha: str


class HubClient:
    """A client for the Hub at HF_ENDPOINT that uses the user's token and retries.

    Raises:
        UserError: the dataset or file does not exist, or the user has no access.
        InputChangedError: a file has changed since it was listed.
        DataError: an answer violates the protocol.
        StorageError: the Hub does not answer for a long time.
    """

    def __init__(self, check: Check = lambda: None) -> None:
        require_library()
        from huggingface_hub import constants
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

        self._endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
        headers: dict[str, str] = build_hf_headers(library_name="tokenmill")
        self._headers = {
            **headers,
            "Accept-Encoding": "identity",
        }  # ranges must refer to the file itself
        self._timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        self._check = check

    def commit_of(self, name: HubName) -> str:
        """Return the current commit of a revision."""
        place = f"/api/datasets/{name.repo}/revision/{quote(name.revision, safe='')}"
        data, _ = self._answer(place, {}, str(name))
        commit: str = _decoded(data, _Revision, str(name)).sha
        if not is_commit(commit):
            raise _broken(str(name), f"the commit is {commit!r}")
        return commit

    def files_in(
        self, name: HubName, commit: str, folder: str, *, recursive: bool
    ) -> list[HubFile]:
        """Return the files in a folder of a dataset at a commit, sorted by path.

        Raises:
            MissingEntryError: the folder does not exist.
        """
        where = str(replace(name, path=folder))
        place = f"/api/datasets/{name.repo}/tree/{commit}"
        place += f"/{quote(folder, safe='')}" if folder else ""
        parameters = {"recursive": str(recursive).lower(), "expand": "false"}
        files: list[HubFile] = []
        num_entries = 0
        for _ in range(MAX_PAGES):
            data, parameters = self._answer(place, parameters, where)
            entries = _decoded(data, list[_File], where)
            files += [_listed(name, commit, entry) for entry in entries if entry.type == "file"]
            num_entries += len(entries)
            if not parameters:
                return sorted(files, key=lambda file: file.path)
            if num_entries > MAX_ENTRIES:
                break
        raise _broken(where, f"the listing has over {MAX_ENTRIES:,} entries or {MAX_PAGES:,} pages")

    def chunks(self, file: HubFile, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes [start, stop) of a file; resumes if an answer is cut off."""
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

        patience = Patience(file.origin, self._check)
        place = f"/datasets/{file.repo}/resolve/{file.commit}/{quote(file.path)}"
        while start < stop:
            why = "the answer ended early"
            asked = {"Range": f"bytes={start}-{stop - 1}"}
            try:
                with self._request(place, asked, {}, patience) as answers:
                    skipped = start - _first_byte(answers, file, start)
                    for chunk in answers[
                        -1
                    ].iter_bytes():  # in small pieces: an answer may be cut off
                        self._check()
                        piece = chunk[skipped : skipped + stop - start]
                        skipped = max(skipped - len(chunk), 0)
                        start += len(piece)
                        if piece:
                            patience.renew()
                            yield piece
                        if start == stop and len(piece) < len(chunk):
                            return  # more than requested; otherwise the connection is reused
            except HTTPError as error:
                why = f"{type(error).__name__}: {error}"
            if start < stop:
                patience.wait(why)

    def _answer(
        self, place: str, parameters: Mapping[str, str], where: str
    ) -> tuple[bytes, dict[str, str]]:
        """Return the body of an API answer, and the parameters for the next page."""
        from huggingface_hub import constants
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

        if not constants.HF_HUB_OFFLINE:
            require_reachable(self._endpoint, where, UNREACHABLE_HINT, self._check)
        patience = Patience(where, self._check, MAX_FIRST_FAILURES)
        while True:
            try:
                with self._request(place, {}, parameters, patience) as answers:
                    response = answers[-1]
                    pieces, num_bytes = [], 0
                    for piece in response.iter_bytes():
                        pieces.append(piece)
                        num_bytes += len(piece)
                        if num_bytes > MAX_ANSWER_BYTES:
                            raise _broken(where, f"the answer has over {MAX_ANSWER_BYTES} bytes")
                    next_page = response.links.get("next", {}).get("url", "")
                    # Only the parameters: the token must not go to a host that an answer names.
                    following = dict(parse_qsl(urlsplit(next_page).query))
                    if next_page and not following:
                        raise _broken(where, "the address of the next page has no parameters")
                    return b"".join(pieces), following
            except HTTPError as error:
                patience.wait(f"{type(error).__name__}: {error}")

    @contextmanager
    def _request(
        self,
        place: str,
        headers: Mapping[str, str],
        parameters: Mapping[str, str],
        patience: Patience,
    ) -> Iterator[list[Any]]:
        """Provide the chain of redirected answers; the last one is open and successful.

        Requests to a busy server are retried.
        """
        from huggingface_hub import constants

        if constants.HF_HUB_OFFLINE:
            raise offline(patience.where)
        while True:
            with self._answers(place, headers, parameters, patience.where) as answers:
                status = answers[-1].status_code
                if status < 400:
                    yield answers
                    return
                if status not in BUSY_STATUSES:
                    raise refusal(answers[-1], patience.where)
                asked_seconds = _asked_seconds(answers[-1].headers)
            patience.wait(f"status {status}", asked_seconds)

    @contextmanager
    def _answers(
        self, place: str, headers: Mapping[str, str], parameters: Mapping[str, str], where: str
    ) -> Iterator[list[Any]]:
        from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

        session = get_session()
        answers: list[Any] = []
        request = session.build_request(
            "GET",
            self._endpoint + place,
            headers={**self._headers, **headers},
            params=dict(parameters) or None,
            timeout=self._timeout,
        )
        while True:
            with closing(session.send(request, stream=True, follow_redirects=False)) as response:
                answers.append(response)
                following = response.next_request  # without the token if it is for another host
                if following is None:
                    yield answers
                    return
                if len(answers) > MAX_REDIRECTS:
                    raise _broken(where, f"more than {MAX_REDIRECTS} redirects")
                if why := objection_to_redirect(response.url, following.url, self._endpoint):
                    raise _broken(where, why)
                _finish(response)
            request = following


def _finish(response: Any) -> None:
    """Read the short body of a redirect, so that its connection can be reused."""
    if int(response.headers.get("Content-Length") or MAX_REDIRECT_BYTES + 1) <= MAX_REDIRECT_BYTES:
        for _ in response.iter_raw():
            pass


def _listed(name: HubName, commit: str, entry: _File) -> HubFile:
    etag = (entry.lfs or {}).get("oid", entry.oid)
    size = (entry.lfs or {}).get("size", entry.size)
    if not isinstance(etag, str) or type(size) is not int:
        raise _broken(str(name), f"digest {etag!r} and size {size!r} of {entry.path!r}")
    file = HubFile(name.repo, commit, entry.path, size, etag)
    if file.problem:
        raise _broken(str(name), file.problem)
    return file


def _first_byte(answers: Sequence[Any], file: HubFile, start: int) -> int:
    """Return the offset of the body in the file, after checks that it is the right file."""
    response = answers[-1]
    commits = _headers(answers, "X-Repo-Commit")
    etags = _headers(answers, "X-Linked-Etag") or _headers(answers, "ETag")
    if not commits or not etags:
        raise _broken(file.origin, "it has no commit or no digest; check that HF_ENDPOINT is a Hub")
    total = response.headers.get("Content-Length")
    if "Content-Encoding" in response.headers:
        total = None  # of what is sent, not of the file
    if response.status_code == 206:
        first, _, total = response.headers.get("Content-Range", "").partition("/")
        if not first.startswith(f"bytes {start}-"):
            raise _broken(file.origin, f"requested byte {start}, got {first!r}")
    same = file.commit in commits and file.etag in etags
    if not same or total not in (None, "*", str(file.num_bytes)):
        raise InputChangedError(
            "a file on the Hub changed after it was listed",
            where=file.origin,
            why=f"commit, digest and size are now {*commits, *etags, total}, not "
            f"{file.commit, file.etag, file.num_bytes}",
            hint="run the same command again to list the files again; if the error persists, "
            "check whether a proxy or mirror serves another file",
        )
    return start if response.status_code == 206 else 0


def _headers(answers: Sequence[Any], name: str) -> list[str]:
    """Return the values of a header in a chain of answers."""
    found = [answer.headers[name] for answer in answers if name in answer.headers]
    return [value.removeprefix("W/").strip('"') for value in found]


def _asked_seconds(headers: Mapping[str, str]) -> float:
    """Return the requested pause in seconds (RFC 9110, 10.2.3, or the draft `RateLimit`)."""
    from email.utils import parsedate_to_datetime

    found = headers.get("Retry-After", "").strip()
    limits = re.search(r";\s*t=(\d+)", headers.get("RateLimit", ""))
    try:
        if not found or found.isdigit():
            return float(found or (limits[1] if limits else 0))
        return parsedate_to_datetime(found).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0


def _decoded(data: bytes, kind: Any, where: str) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(where, str(error)) from error


def _broken(where: str, why: str) -> DataError:
    return DataError("invalid answer from the Hub", where=where, why=why)

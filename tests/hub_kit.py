"""A server on this machine that speaks as much of the Hub's protocol as data sets and models need.

/api/datasets/REPO/revision/REVISION       the commit
/api/datasets/REPO/tree/COMMIT[/FOLDER]    files, some a page, with a Link to the next
/datasets/REPO/resolve/COMMIT/PATH         small files; for large ones, the way to another host
/api/models/REPO/..., /REPO/resolve/...    the same for models; a tree has one page
/store/ETAG                                large files, in ranges, without asking who it is

What writes asks for a token:

/api/repos/create                          a new repository
/api/datasets/REPO                         whether it is private
/api/datasets/REPO/branch/BRANCH           a new branch
/api/datasets/REPO/preupload/REVISION      which files are large, and which .gitignore leaves out
/datasets/REPO.git/info/lfs/objects/batch  where to put large files that are not there yet
/store/ETAG                                takes a large file
/api/datasets/REPO/commit/REVISION         small files, names of large ones, and what to delete
"""

from __future__ import annotations

import base64
import fnmatch
import functools
import hashlib
import io
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

LARGE = (".parquet", ".gz", ".arrow", ".npy", ".pt")
"""Endings of files that are kept in the store."""
TOKEN = "hf_a_token"


@dataclass
class Fault:
    """What happens to the next requests whose path holds `match`."""

    match: str
    status: int = 0
    """Of an answer with `body` in place of the usual one."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"
    cut_after: int | None = None
    """The connection ends after this many bytes of the body."""
    short_by: int = 0
    """The answer is for a range that is this much shorter than the one asked for."""
    is_damaged: bool = False
    """The last byte of the body is another one."""
    times: int = 1


@dataclass
class FakeHub:
    """Repositories, and everything that was asked for."""

    endpoint: str = ""
    repos: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    """Files by repository, commit and path."""
    revisions: dict[str, dict[str, str]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    """Path, and range if there was one."""
    tokens_at_store: list[str | None] = field(default_factory=list)
    sent_bytes: int = 0
    needs_token: bool = False
    hostile_listing: list[dict[str, Any]] = field(default_factory=list)
    page_entries: int = 3
    """The address of the next page is on another host, which only tokenmill does not ask."""
    empty_pages: int = 0
    """Before the first entries of each listing."""
    endless: bool = False
    """Every page of a listing names a next one."""
    etags: dict[str, str] = field(default_factory=dict)
    """Digests that the server claims from now on, by path."""
    latency_seconds: float = 0.0
    """Before every answer."""
    pause_at: str = ""
    """Paths with this in them are not answered before `goes_on` is set."""
    goes_on: threading.Event = field(default_factory=threading.Event)
    public: set[str] = field(default_factory=set)
    stored: dict[str, bytes] = field(default_factory=dict)
    """Large files that were uploaded, by digest, in a commit or not."""
    verify_at: str = ""
    """The host and port that shall be told when a large file is uploaded."""

    def commit(self, repo: str, files: dict[str, bytes], *revisions: str) -> str:
        """A commit of these files alone, and branches that point to it."""
        content = repr(sorted((path, sha256(data)) for path, data in files.items()))
        sha = hashlib.sha1(content.encode()).hexdigest()
        self.repos.setdefault(repo, {})[sha] = dict(files)
        for revision in revisions or ("main",):
            self.revisions.setdefault(repo, {})[revision] = sha
        return sha

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        """What is in a branch."""
        return self.repos[repo][self.revisions[repo][revision]]

    def asked(self, part: str) -> int:
        """How many requests had a path with this in it."""
        return sum(part in request for request in self.requests)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@functools.cache
def etag_of(path: str, data: bytes) -> str:
    """As the Hub has it: SHA-256 of large files, the blob id of git for others."""
    if path.endswith(LARGE):
        return sha256(data)
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def parquet(texts: Sequence[str | None], rows: int = 100, **columns: Sequence[object]) -> bytes:
    """A Parquet file with a column `text`, further ones, and row groups of `rows`."""
    file = io.BytesIO()
    pq.write_table(pa.table({"text": texts, **columns}), file, row_group_size=rows)
    return file.getvalue()


@contextmanager
def serving() -> Iterator[FakeHub]:
    """A hub that answers until the end of the block."""
    hub = FakeHub()

    class Handler(_Handler):
        pass

    Handler.hub = hub
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign] - clients may hang up
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        asked = f" {self.headers['Range']}" if "Range" in self.headers else ""
        self.hub.requests.append(unquote(self.path) + asked)
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        time.sleep(self.hub.latency_seconds)
        if self.hub.pause_at and self.hub.pause_at in self.path:
            self.hub.goes_on.wait()
        try:
            self._get()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _get(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        self.fault = next((f for f in self.hub.faults if f.match in path and f.times), Fault(""))
        self.fault.times -= 1
        if self.fault.status:
            return self._answer(self.fault.status, self.fault.body, **self.fault.headers)
        if self.command in ("POST", "PUT"):
            return self._write(path)
        if path.startswith("/store/"):
            self.hub.tokens_at_store.append(self.headers["Authorization"])
            return self._send_store(path.removeprefix("/store/"))
        if self.hub.needs_token and self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._error(401, **{"X-Error-Code": "GatedRepo"})
        found = re.fullmatch(r"/api/(?:datasets|models)/(.+?)/(revision|tree)/(.+)", path)
        if found and found[2] == "revision":
            return self._send_revision(found[1], found[3])
        if found and path.startswith("/api/models/"):
            files = self.hub.repos[found[1]][found[3]]
            return self._send_json([_entry(name, data) for name, data in files.items()])
        if found:
            return self._send_tree(found[1], *found[3].partition("/")[::2], parse_qs(url.query))
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)", path):
            if found[1] not in self.hub.repos:
                return self._error(404, **{"X-Error-Code": "RepoNotFound"})
            return self._send_json({"id": found[1], "private": found[1] not in self.hub.public})
        found = re.fullmatch(r"/(?:datasets/)?(.+?)/resolve/([^/]+)/(.+)", path)
        return self._send_file(found[1], found[2], found[3]) if found else self._error(404)

    def _write(self, path: str) -> None:
        hub = self.hub
        if path.startswith("/store/"):
            hub.tokens_at_store.append(self.headers["Authorization"])
            hub.stored[path.removeprefix("/store/")] = self.body
            return self._answer(200, b"")
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self._error(401, **{"X-Error-Message": "Invalid credentials"})
        asked = [json.loads(line) for line in self.body.splitlines()]
        if path == "/api/validate-yaml":
            return self._send_json({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self._create(f"{asked[0]['organization']}/{asked[0]['name']}", asked[0])
        if found := re.fullmatch(r"/datasets/(.+)\.git/info/lfs/objects/batch", path):
            return self._send_places(asked[0]["objects"])
        found = re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/(branch|preupload|commit)/(.+)", path)
        assert found
        revisions = hub.revisions[found[1]]
        if found[2] == "branch":
            is_there = found[3] in revisions
            revisions.setdefault(found[3], revisions["main"])
            return self._error(409) if is_there else self._send_json({})
        if found[3] not in revisions:
            return self._error(404, **{"X-Error-Code": "RevisionNotFound"})
        if found[2] == "preupload":
            there = hub.files(found[1], found[3]).get(".gitignore", b"").decode()
            ignored = asked[0].get("gitIgnore") or there
            files = [_mode_of(file["path"], ignored.split()) for file in asked[0]["files"]]
            return self._send_json({"files": files})
        return self._commit(found[1], found[3], asked)

    def _create(self, repo: str, asked: dict[str, Any]) -> None:
        url = json.dumps({"url": f"{self.hub.endpoint}/datasets/{repo}"}).encode()
        if repo in self.hub.repos:
            return self._answer(409, url)
        assert asked.get("private", asked.get("visibility")) in (True, "private"), asked
        self.hub.commit(repo, {".gitattributes": b"*.parquet filter=lfs\n"})
        return self._answer(200, url)

    def _send_places(self, objects: list[dict[str, Any]]) -> None:
        places = []
        for one in objects:
            place = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.hub.stored:
                port = self.server.server_address[1]
                actions = {"upload": {"href": f"http://localhost:{port}/store/{one['oid']}"}}
                if self.hub.verify_at:
                    actions["verify"] = {"href": f"http://{self.hub.verify_at}/verify"}
                place["actions"] = actions
            places.append(place)
        self._send_json({"transfer": "basic", "objects": places})

    def _commit(self, repo: str, branch: str, lines: list[dict[str, Any]]) -> None:
        hub = self.hub
        files = dict(hub.files(repo, branch))
        for line in lines:
            value = line["value"]
            if line["key"] == "header" and value["parentCommit"] != hub.revisions[repo][branch]:
                return self._error(412)
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            if line["key"] == "lfsFile":
                files[value["path"]] = hub.stored[value["oid"]]
            if line["key"] == "deletedFile":
                del files[value["path"]]
        sha = hub.commit(repo, files, branch)
        url = f"{hub.endpoint}/datasets/{repo}/commit/{sha}"
        return self._send_json({"commitUrl": url, "commitOid": sha})

    def _send_revision(self, repo: str, revision: str) -> None:
        if repo not in self.hub.repos:
            return self._error(404, **{"X-Error-Code": "RepoNotFound"})
        sha = revision if revision in self.hub.repos[repo] else None
        sha = self.hub.revisions[repo].get(revision, sha)
        if sha is None:
            return self._error(404, **{"X-Error-Code": "RevisionNotFound"})
        return self._send_json({"id": repo, "sha": sha})

    def _send_tree(self, repo: str, sha: str, folder: str, query: dict[str, list[str]]) -> None:
        files = self.hub.repos[repo][sha]
        prefix = f"{folder}/" if folder else ""
        entries = [_entry(path, data) for path, data in files.items() if path.startswith(prefix)]
        if query["recursive"] == ["false"]:
            entries = [e for e in entries if "/" not in e["path"].removeprefix(prefix)]
        if not entries:
            return self._error(404, **{"X-Error-Code": "EntryNotFound"})
        entries += self.hub.hostile_listing
        start = int(query.get("cursor", [str(-self.hub.page_entries * self.hub.empty_pages)])[0])
        stop = start + self.hub.page_entries
        headers = {}
        if stop < len(entries) or self.hub.endless:
            address = f"https://elsewhere.invalid/?recursive={query['recursive'][0]}&cursor={stop}"
            headers["Link"] = f'<{address}>; rel="next"'
        return self._send_json(entries[max(start, 0) : max(stop, 0)], **headers)

    def _send_file(self, repo: str, sha: str, path: str) -> None:
        sha = self.hub.revisions[repo].get(sha, sha)
        data = self.hub.repos[repo][sha].get(path)
        if data is None:
            return self._error(404, **{"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha})
        etag = self.hub.etags.get(path, etag_of(path, data))
        headers = {"X-Repo-Commit": sha}
        if len(etag) == 40:
            return self._send_range(data, ETag=f'"{etag}"', **headers)
        headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(data))}
        port = self.server.server_address[1]
        headers["Location"] = f"http://localhost:{port}/store/{etag_of(path, data)}"
        return self._answer(302, b"", ETag='"of-the-pointer"', **headers)

    def _send_store(self, etag: str) -> None:
        commits = [files for repo in self.hub.repos.values() for files in repo.values()]
        data = next(d for files in commits for p, d in files.items() if etag_of(p, d) == etag)
        self._send_range(data, ETag='"of-the-store"')

    def _send_range(self, data: bytes, **headers: str) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if not asked:
            return self._answer(200, data, **headers)
        start, stop = int(asked[1]), min(int(asked[2]) + 1, len(data)) - self.fault.short_by
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return self._answer(206, data[start:stop], **headers)

    def _send_json(self, value: object, **headers: str) -> None:
        self._answer(200, json.dumps(value).encode(), **headers)

    def _error(self, status: int, **headers: str) -> None:
        self._answer(status, b"{}", **headers)

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.fault.cut_after is not None:
            body = body[: self.fault.cut_after]
            self.close_connection = True
        if self.fault.is_damaged:
            body = body[:-1] + bytes([body[-1] ^ 1])
        if self.command == "HEAD":
            return
        self.wfile.write(body)
        self.hub.sent_bytes += len(body)


def _mode_of(path: str, ignored: Sequence[str]) -> dict[str, Any]:
    mode = "lfs" if path.endswith(LARGE) else "regular"
    is_ignored = any(fnmatch.fnmatch(path, pattern) for pattern in ignored)
    return {"path": path, "uploadMode": mode, "shouldIgnore": is_ignored}


def _entry(path: str, data: bytes) -> dict[str, Any]:
    etag = etag_of(path, data)
    entry: dict[str, Any] = {"type": "file", "path": path, "size": len(data), "oid": etag}
    if len(etag) == 64:
        entry |= {"oid": "0" * 40, "lfs": {"oid": etag, "size": len(data), "pointerSize": 130}}
    return entry

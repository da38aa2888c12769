"""The part of Google's XML API that clients use, run as a script that prints its port.

It serves until its input ends. Objects are in memory: PUT and POST (uploads in parts) with
x-goog-if-generation-match, GET and HEAD with ranges and If-Match, listings by pages, DELETE.
https://cloud.google.com/storage/docs/xml-api/reference-headers
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

PAGE = 1000
DATE = "2026-11-22T02:00:00.000Z"
HTTP_DATE = "Sun, 22 Nov 2026 02:00:00 GMT"


@dataclass
class StoredObject:
    data: bytes
    generation: int

    @property
    def etag(self) -> str:
        return f'"generation-{self.generation}"'

    @property
    def header(self) -> dict[str, str]:
        return {"ETag": self.etag, "x-goog-generation": str(self.generation)}


OBJECTS: dict[str, StoredObject] = {}
UPLOADS: dict[str, dict[int, bytes]] = {}
LOCK = Lock()
NUMBERS = count(1)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: object) -> None:
        return

    def do_PUT(self) -> None:
        key, query, body = self.received()
        if "uploadId" in query:
            UPLOADS[query["uploadId"]][int(query["partNumber"])] = body
            self.answer(200, header={"ETag": f'"part-{query["partNumber"]}"'})
        else:
            self.store(key, body, "")

    def do_POST(self) -> None:
        key, query, _ = self.received()
        if "uploads" in query:
            upload = f"upload-{next(NUMBERS)}"
            UPLOADS[upload] = {}
            name = "InitiateMultipartUploadResult"
            self.answer(200, f"<{name}><UploadId>{upload}</UploadId></{name}>".encode())
        else:
            parts = UPLOADS.pop(query["uploadId"])
            name = "CompleteMultipartUploadResult"
            body = f"<{name}><ETag>whole</ETag></{name}>"
            self.store(key, b"".join(data for _, data in sorted(parts.items())), body)

    def do_DELETE(self) -> None:
        key, _, _ = self.received()
        with LOCK:
            found = OBJECTS.pop(key, None)
        self.answer(204 if found else 404)

    def do_GET(self) -> None:
        key, query, _ = self.received()
        if not key:
            self.answer(200, listing(query))
            return
        found = OBJECTS.get(key)
        if found is None:
            self.answer(404, failure("NoSuchKey"))
            return
        if self.headers.get("If-Match", found.etag) != found.etag:
            self.answer(412, failure("PreconditionFailed"))
            return
        header = {**found.header, "Last-Modified": HTTP_DATE}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted is None:
            self.answer(200, found.data, header)
            return
        start, last = int(wanted[1]), int(wanted[2] or len(found.data) - 1)
        part = found.data[start : last + 1]
        header["Content-Range"] = f"bytes {start}-{start + len(part) - 1}/{len(found.data)}"
        self.answer(206, part, header)

    do_HEAD = do_GET

    def received(self) -> tuple[str, dict[str, str], bytes]:
        """Key, query and body of a request; the bucket's name is not looked at."""
        address = urlsplit(self.path)
        query = parse_qs(address.query, keep_blank_values=True)
        key = unquote(address.path).lstrip("/").partition("/")[2]
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return key, {name: values[0] for name, values in query.items()}, body

    def store(self, key: str, data: bytes, body: str) -> None:
        """Store an object if its generation is the one that the request names; 0 is none."""
        wanted = self.headers.get("x-goog-if-generation-match")
        with LOCK:
            found = OBJECTS.get(key)
            if wanted is not None and int(wanted) != (found.generation if found else 0):
                self.answer(412, failure("PreconditionFailed"))
                return
            stored = OBJECTS[key] = StoredObject(data, next(NUMBERS))
        self.answer(200, body.encode(), stored.header)

    def answer(self, status: int, body: bytes = b"", header: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (header or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def listing(query: dict[str, str]) -> bytes:
    """A page of keys below a prefix, and of folders where a delimiter is given."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token", query.get("start-after", ""))
    with LOCK:
        objects = dict(OBJECTS)
    keys = [key for key in sorted(objects) if key.startswith(prefix) and key > after]
    page, rest = keys[:PAGE], keys[PAGE:]
    lines, folders = [], set()
    for key in page:
        folder, slash, _ = key[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
        if slash:
            folders.add(f"{prefix}{folder}{delimiter}")
            continue
        stored = objects[key]
        lines.append(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(stored.data)}</Size>"
            f"<LastModified>{DATE}</LastModified><ETag>{escape(stored.etag)}</ETag></Contents>"
        )
    lines += [
        f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
        for folder in sorted(folders)
    ]
    if rest:
        lines.append(f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>")
    return f"<ListBucketResult>{''.join(lines)}</ListBucketResult>".encode()


def failure(code: str) -> bytes:
    return f"<Error><Code>{code}</Code></Error>".encode()


class Server(ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()

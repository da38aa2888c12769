"""Downloads: each byte once, whatever the server does, and never a wrong one."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants, hf_hub_download, scan_cache_dir

from hub_kit import TOKEN, FakeHub, Fault, etag_of, parquet, serving
from tokenmill.core.errors import (
    DamagedInputError,
    DataError,
    InputChangedError,
    StorageError,
    UserError,
)
from tokenmill.core.installed import install_command
from tokenmill.read.places.hub import cache, client, download, patience
from tokenmill.read.places.hub.file import HubFile
from tokenmill.read.places.hub.names import parse_hub_name
from tokenmill.read.places.hub.place import Hub
from tokenmill.read.places.hub.redirects import is_public, objection_to_redirect
from tokenmill.read.places.place import Access, FetchProgress
from tokenmill.read.sources import find_sources

LARGE = parquet([f"{number} text" for number in range(20_000)])
FILES = {"data/a.parquet": LARGE, "data/b.parquet": parquet(["b"])}
NAME = "hf://datasets/o/n/data"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.commit("o/n", FILES)
        yield hub


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long would have been waited."""
    waited: list[float] = []
    monkeypatch.setattr(patience, "pause", lambda seconds, check: waited.append(seconds))
    return waited


def fetch(folder: Path, name: str = NAME, **options: Any) -> dict[str, bytes]:
    """What is in the cache after a download."""
    access = Access("download", str(folder), **options)
    sources = Hub().fetch(Hub().list([name], access)[name], access)
    return {
        parse_hub_name(source.location).path: source.path.read_bytes()
        for source in sources
        if source.path
    }


def test_a_second_download_asks_for_the_commit_only(hub: FakeHub, tmp_path: Path) -> None:
    assert fetch(tmp_path) == FILES
    assert hub.asked("/store/") == 2
    hub.requests.clear()
    assert fetch(tmp_path) == FILES
    assert hub.requests == ["/api/datasets/o/n/revision/main"]


def test_files_of_other_formats_are_refused_by_their_names_on_the_hub(
    hub: FakeHub, tmp_path: Path
) -> None:
    commit = hub.commit("o/n", {"data/a.rtf": b"words", "data/b.html.gz": b"<p>"})
    with pytest.raises(UserError, match="cannot read 2 inputs") as caught:
        find_sources(["hf://datasets/o/n/data/*"], access=Access("download", str(tmp_path)))
    at = f"hf://datasets/o/n@{commit}/data"
    assert f"office documents or e-books (1): {at}/a.rtf\n" in caught.value.why
    assert f"HTML (1): {at}/b.html.gz\n" in caught.value.why


def test_a_folder_of_csv_is_read_and_beside_records_it_is_left_out(
    hub: FakeHub, tmp_path: Path
) -> None:
    hub.commit("o/n", {"data/a.csv": b"id,text\n1,a\n", "more/b.csv": b"", **FILES})
    hub.commit("o/t", {"data/a.csv": b"id,text\n1,a\n", "data/README.md": b"notes"})
    access = Access("download", str(tmp_path))
    found = find_sources(["hf://datasets/o/t/data", "hf://datasets/o/n/data"], access=access)
    assert [(source.name, source.format) for source in found] == [
        ("o/t/data/a.csv", "csv"),
        ("o/n/data/a.parquet", "parquet"),
        ("o/n/data/b.parquet", "parquet"),
    ]


@pytest.mark.parametrize("path", ["data", "sample/10BT"])
def test_a_folder_that_is_missing_is_named(hub: FakeHub, tmp_path: Path, path: str) -> None:
    hub.commit("o/empty", {})
    hub.commit("o/m", {"other/a.parquet": LARGE})
    for repo in ("o/empty", "o/m"):
        with pytest.raises(UserError, match="an input does not exist") as caught:
            fetch(tmp_path, f"hf://datasets/{repo}/{path}")
        assert caught.value.where == f"hf://datasets/{repo}/{path}"
        assert caught.value.why == f"the dataset has no file or folder {path!r}"


def test_a_commit_in_the_cache_needs_no_server(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(tmp_path)
    hub.requests.clear()
    pinned = f"hf://datasets/o/n@{hub.revisions['o/n']['main']}/data"
    fetch(tmp_path, pinned)
    assert hub.requests == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(tmp_path, pinned) == FILES
    assert fetch(tmp_path) == FILES  # the branch stands for what it last stood for
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set"):
        fetch(tmp_path, "hf://datasets/o/n/data/a.parquet@main")
    (tmp_path / "datasets--o--n/blobs" / etag_of("a.parquet", LARGE)).unlink()
    with pytest.raises(UserError, match="not in the cache"):
        fetch(tmp_path)
    assert hub.requests == []


def test_other_tools_find_what_was_downloaded(hub: FakeHub, tmp_path: Path) -> None:
    fetch(tmp_path)
    path = hf_hub_download(
        "o/n", "data/a.parquet", repo_type="dataset", cache_dir=tmp_path, local_files_only=True
    )
    assert Path(path).read_bytes() == LARGE
    found = scan_cache_dir(tmp_path)
    (repo,) = found.repos
    assert (repo.repo_id, repo.nb_files, found.warnings) == ("o/n", 2, [])
    (revision,) = repo.revisions
    assert revision.refs == {"main"}


def test_what_other_tools_have_downloaded_is_not_fetched_again(
    hub: FakeHub, tmp_path: Path
) -> None:
    fetch(tmp_path)
    shutil.rmtree(tmp_path / "datasets--o--n/listings")
    shutil.rmtree(tmp_path / "datasets--o--n/refs")
    hub.requests.clear()
    assert fetch(tmp_path) == FILES
    assert hub.asked("/resolve/") == 0


def test_a_busy_server_is_waited_for_as_it_asks(
    hub: FakeHub, tmp_path: Path, pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    hub.faults = [
        Fault("/revision/", 429, {"Retry-After": "7"}),
        Fault("/tree/", 503),
        Fault("/tree/", 429, {"RateLimit": '"api";r=0;t=42'}),
        Fault("/resolve/", 429, {"Retry-After": "11"}),
    ]
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert pauses == [7, 1, 42, 11]  # 7: instead of 1; 42: instead of 2
    where = "hf://datasets/o/n/data/a.parquet"
    assert caplog.messages[0] == f"{where}: status 429; retrying in 7 s"
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_server_may_ask_for_no_pause_or_name_a_time(
    hub: FakeHub, tmp_path: Path, pauses: list[float]
) -> None:
    in_a_minute = formatdate(time.time() + 60, usegmt=True)
    hub.faults = [
        *(Fault("/resolve/", 429, {"Retry-After": seconds}) for seconds in ("0", "1")),
        Fault("/resolve/", 429, {"Retry-After": in_a_minute}),
        Fault("/resolve/", 429, {"Retry-After": "soon"}),
    ]
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert [*pauses[:2], pauses[3]] == [1, 2, 8]  # never less than without being asked
    assert 30 < pauses[2] <= 60


def test_a_server_that_asks_for_an_hour_is_not_waited_for(
    hub: FakeHub, tmp_path: Path, pauses: list[float]
) -> None:
    hub.faults = [Fault("/resolve/", 429, {"Retry-After": "3600"}, times=10)]
    with pytest.raises(StorageError, match="asks to wait 3600 s"):
        fetch(tmp_path)
    assert pauses == []


def test_a_server_that_stays_down_is_given_up_after_longer_and_longer_pauses(
    hub: FakeHub, tmp_path: Path, pauses: list[float]
) -> None:
    hub.faults = [Fault("/store/", 503, times=100)]
    with pytest.raises(StorageError, match="the Hub did not answer"):
        fetch(tmp_path, f"{NAME}/a.parquet")
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


@pytest.mark.parametrize("fault", [{"cut_after": 30_000}, {"short_by": 50_000}])
def test_a_body_that_breaks_off_goes_on_where_it_stopped(
    hub: FakeHub, tmp_path: Path, pauses: list[float], fault: dict[str, int]
) -> None:
    hub.faults = [Fault("/store/", **fault)]  # type: ignore[arg-type]
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert pauses == [1]
    ranges = [request.split()[1] for request in hub.requests if "/store/" in request]
    size = len(LARGE)
    stop = 30_000 if "cut_after" in fault else size - 50_000
    assert ranges == [f"bytes=0-{size - 1}", f"bytes={stop}-{size - 1}"]
    assert hub.sent_bytes < size + 10_000


def test_a_line_that_always_breaks_off_gets_on(
    hub: FakeHub, tmp_path: Path, pauses: list[float]
) -> None:
    hub.faults = [Fault("/store/", cut_after=5_000, times=1000)]
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert pauses == [1] * (len(LARGE) // 5_000)
    assert hub.sent_bytes < len(LARGE) + 10_000


def test_a_server_that_ignores_ranges_is_read_past_what_is_there(
    hub: FakeHub, tmp_path: Path, pauses: list[float]
) -> None:
    hub.faults = [Fault("/store/", cut_after=30_000), Fault("/store/", whole=True)]
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert hub.sent_bytes > len(LARGE)


def test_a_download_that_was_stopped_goes_on_where_it_stopped(
    hub: FakeHub, tmp_path: Path, pauses: list[float]
) -> None:
    hub.faults = [Fault("/store/", cut_after=40_000), Fault("/store/", 503, times=100)]
    with pytest.raises(StorageError):
        fetch(tmp_path, f"{NAME}/a.parquet")
    hub.faults, hub.sent_bytes = [], 0
    progress: list[FetchProgress] = []
    assert fetch(tmp_path, f"{NAME}/a.parquet", listener=progress.append) == {
        "data/a.parquet": LARGE
    }
    assert hub.sent_bytes < len(LARGE) - 30_000
    assert progress[-1] == FetchProgress(len(LARGE), len(LARGE), 1, 1)
    assert not list(tmp_path.glob("*/parts/*"))


def leave_part(folder: Path, data: bytes, owner: str = "") -> Path:
    """What an earlier download has left of the large file."""
    part = folder / "datasets--o--n/parts" / f"{etag_of('a.parquet', LARGE)}{owner}"
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_bytes(data)
    return part


def ended_process() -> int:
    with subprocess.Popen(["true"]) as process:
        return process.pid


def test_a_part_of_a_killed_process_is_taken_over(hub: FakeHub, tmp_path: Path) -> None:
    leave_part(tmp_path, LARGE[:-50], f".{cache._HOST}.{ended_process()}.01234567")
    leave_part(tmp_path, LARGE[:9], f".{cache._HOST}.{ended_process()}.89abcdef")
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert hub.sent_bytes < 10_000
    assert not list(tmp_path.glob("*/parts/*"))


@pytest.mark.parametrize(
    "owner",
    [f".{cache._HOST}.{os.getpid()}.01234567", ".other.1.01234567"],
    ids=["on this machine", "on another"],
)
def test_a_part_that_another_download_writes_to_is_left_alone(
    hub: FakeHub, tmp_path: Path, owner: str
) -> None:
    part = leave_part(tmp_path, LARGE[:-50], owner)
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert hub.sent_bytes > len(LARGE)
    assert part.read_bytes() == LARGE[:-50]


def test_a_part_of_another_machine_is_taken_over_after_a_day(hub: FakeHub, tmp_path: Path) -> None:
    part = leave_part(tmp_path, LARGE[:-50], ".other.1.01234567")
    os.utime(part, (0, time.time() - cache.LEFT_SECONDS - 1))
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert hub.sent_bytes < 10_000


def test_bytes_with_another_digest_are_thrown_away(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_part(tmp_path, b"damage")
    with pytest.raises(DamagedInputError, match="its digest is"):
        fetch(tmp_path, f"{NAME}/a.parquet")
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}


def test_a_file_that_was_cut_off_in_the_cache_is_fetched_anew(hub: FakeHub, tmp_path: Path) -> None:
    fetch(tmp_path)
    (tmp_path / "datasets--o--n/blobs" / etag_of("a.parquet", LARGE)).write_bytes(LARGE[:100])
    assert fetch(tmp_path) == FILES
    assert hub.asked("/store/") == 3


def test_a_file_that_vanishes_says_what_to_do(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache.HubCache, "find", lambda self, file: None)
    with pytest.raises(StorageError, match="was deleted from the cache") as raised:
        fetch(tmp_path)
    assert raised.value.hint.endswith("run the same command again")


def test_small_files_are_known_by_their_digest_in_git(hub: FakeHub, tmp_path: Path) -> None:
    hub.commit("o/small", {"a.jsonl": b'{"text": "a"}\n'})
    name = "hf://datasets/o/small/a.jsonl"
    assert fetch(tmp_path, name) == {"a.jsonl": b'{"text": "a"}\n'}
    (blob,) = tmp_path.glob("datasets--o--small/blobs/*")
    assert blob.name == "33157540feb8483310055d7a1e0358703c4a14b2"


def test_a_file_that_is_not_what_was_listed_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    hub.etags["data/a.parquet"] = "0" * 64
    with pytest.raises(InputChangedError, match="changed after it was listed"):
        fetch(tmp_path)


@pytest.mark.parametrize("num_pages", [1, 3])
def test_pages_without_entries_do_not_end_a_listing(
    hub: FakeHub, tmp_path: Path, num_pages: int
) -> None:
    hub.empty_pages = num_pages
    assert fetch(tmp_path) == FILES


def test_a_listing_without_end_is_refused(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MAX_PAGES", 5)
    hub.endless = True
    with pytest.raises(DataError, match="or 5 pages"):
        fetch(tmp_path)
    assert hub.asked("/tree/") == 5


def listing_path(folder: Path) -> Path:
    (path,) = folder.glob("datasets--o--n/listings/*.json")
    return path


def test_a_listing_that_was_wrong_is_asked_for_again(hub: FakeHub, tmp_path: Path) -> None:
    fetch(tmp_path / "good")
    stored = json.loads(listing_path(tmp_path / "good").read_bytes())
    stored[0]["etag"] = "1" * 64
    fetch(tmp_path / "bad")
    shutil.rmtree(tmp_path / "bad/datasets--o--n/snapshots")
    listing_path(tmp_path / "bad").write_text(json.dumps(stored))
    with pytest.raises(InputChangedError, match="changed after it was listed") as raised:
        fetch(tmp_path / "bad")
    assert raised.value.hint.startswith("run the same command again")
    assert fetch(tmp_path / "bad") == FILES


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files[0].update(path="../../../../x"),
        lambda files: files[0].update(etag="../x"),
        lambda files: files[0].update(repo="o/other"),
        lambda files: files[0].update(commit="0" * 40),
        lambda files: files.clear(),
        lambda files: files.append(3),
    ],
)
def test_a_stored_listing_that_cannot_be_right_is_not_used(
    hub: FakeHub, tmp_path: Path, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    fetch(tmp_path)
    files = json.loads(listing_path(tmp_path).read_bytes())
    change(files)
    listing_path(tmp_path).write_text(json.dumps(files))
    assert fetch(tmp_path) == FILES
    assert not list(tmp_path.rglob("x"))
    assert hub.asked("/tree/") == 2


def test_a_listing_by_other_rules_is_not_used(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch(tmp_path)
    monkeypatch.setattr(cache, "RULES", cache.RULES + 1)
    fetch(tmp_path)
    assert hub.asked("/tree/") == 2


@pytest.mark.parametrize("content", [b"\xff\xfe", b"../../x", b""])
def test_a_remembered_commit_that_is_none_is_not_used(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    fetch(tmp_path)
    (tmp_path / "datasets--o--n/refs/main").write_bytes(content)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="not in the cache") as raised:
        fetch(tmp_path)
    assert "give a commit that is in the cache" in raised.value.hint
    with pytest.raises(UserError, match="not in the cache") as raised:
        fetch(tmp_path, f"hf://datasets/o/n@{'0' * 40}")
    assert raised.value.hint == "unset it, or give another cache with --cache-dir"


@pytest.mark.parametrize("path", ["../../x", "/etc/x", "a/../../x", "a\\x", "a//b", "a/\n", ""])
def test_a_hostile_path_is_refused(hub: FakeHub, tmp_path: Path, path: str) -> None:
    entry = {"type": "file", "path": path, "size": 1, "oid": "0" * 40}
    hub.hostile_listing = [entry]
    with pytest.raises(DataError, match="points outside its dataset"):
        fetch(tmp_path / "cache")
    assert not list(tmp_path.rglob("x"))


@pytest.mark.parametrize("change", [{"oid": "../../x"}, {"size": -1}, {"lfs": {"oid": 3}}])
def test_a_hostile_digest_or_size_is_refused(
    hub: FakeHub, tmp_path: Path, change: dict[str, object]
) -> None:
    hub.hostile_listing = [{"type": "file", "path": "x", "size": 1, "oid": "0" * 40, **change}]
    with pytest.raises(DataError, match="invalid answer from the Hub"):
        fetch(tmp_path)


def test_a_gated_data_set_says_how_to_get_in(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.needs_token = True
    with pytest.raises(UserError) as raised:
        fetch(tmp_path)
    assert raised.value.what == "the dataset is gated"
    assert raised.value.hint == (
        "accept its terms at https://huggingface.co/datasets/o/n, then log in with "
        "`hf auth login`, or set HF_TOKEN"
    )
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fetch(tmp_path) == FILES
    assert hub.tokens_at_store == [None, None]  # no token for another host


@pytest.mark.parametrize("status", [401, 403])
def test_what_may_not_be_read_says_so(hub: FakeHub, tmp_path: Path, status: int) -> None:
    hub.faults = [Fault("/resolve/", status, times=10)]
    with pytest.raises(UserError, match=f"status {status}") as raised:
        fetch(tmp_path)
    assert "hf auth login" in raised.value.hint


def test_what_a_server_says_cannot_write_to_a_terminal(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults = [Fault("/revision/", 403, {"X-Error-Message": "\x1b[31mno\x07"})]
    with pytest.raises(UserError) as raised:
        fetch(tmp_path)
    assert raised.value.why == "status 403: [31mno"


def test_a_download_that_cannot_fit_is_not_begun(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StorageError, match="100 are free"):
        fetch(tmp_path)
    assert hub.asked("/resolve/") == 0


def test_what_has_come_before_needs_no_room(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_part(tmp_path, LARGE[:-50])
    blobs = tmp_path / "datasets--o--n/blobs"
    blobs.mkdir()
    small = FILES["data/b.parquet"]
    (blobs / etag_of("b.parquet", small)).write_bytes(small)
    usage = shutil.disk_usage(tmp_path)._replace(free=50)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: usage)
    assert fetch(tmp_path) == FILES
    assert hub.asked("/store/") == 1


def test_without_the_library_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=re.escape(install_command("hf"))):
        fetch(tmp_path)


def test_an_answer_that_is_no_answer_of_the_hub_is_refused(hub: FakeHub, tmp_path: Path) -> None:
    hub.revisions["o/n"]["main"] = "../../x"
    with pytest.raises(DataError, match="the commit is"):
        fetch(tmp_path)


def test_a_pause_ends_with_the_work() -> None:
    def check() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        patience.pause(1000, check)


def test_builds_that_want_the_same_files_at_the_same_time_do_not_disturb_each_other(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fcntl.flock", lambda *_: None)  # as some network file systems have it
    hub.latency_seconds = 0.1
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(fetch, [tmp_path] * 4))
    assert found == [FILES] * 4
    assert not list(tmp_path.glob("*/parts/*"))


def test_an_interrupt_does_not_wait_for_the_server(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(progress: FetchProgress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 3600)
    hub.pause_at = "/store/"
    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path, listener=interrupt)
    hub.goes_on.set()


def test_files_that_two_names_share_are_fetched_once(hub: FakeHub, tmp_path: Path) -> None:
    file = HubFile("o/n", hub.revisions["o/n"]["main"], "data/a.parquet", len(LARGE),
                   etag_of("a.parquet", LARGE))  # fmt: skip
    download.download(cache.HubCache(str(tmp_path)), [file, file], lambda progress: None)
    assert hub.asked("/store/") == 1


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Addresses by name, as the check of redirects finds them; others are asked for as usual."""
    found: dict[str, list[str]] = {"127.0.0.1": ["8.8.8.8"]}
    usual = socket.getaddrinfo

    def getaddrinfo(host: str, port: object, *args: Any, **options: Any) -> list[Any]:
        if port is None and host in found:
            return [(0, 0, 0, "", (address, 0)) for address in found[host]]
        return usual(host, port, *args, **options)

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    return found


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["8.8.8.8", "10.0.0.1"],
        ["::1"],
        ["::ffff:192.168.0.1"],
        ["64:ff9b::a9fe:a9fe"],
        ["fe80::1%eth0"],
        ["0.0.0.0"],
    ],
)
def test_a_redirect_into_a_private_network_is_refused(
    hub: FakeHub, tmp_path: Path, public: dict[str, list[str]], addresses: list[str]
) -> None:
    public["localhost"] = addresses  # to where the Hub leads for large files
    with pytest.raises(DataError, match=r"an address that is not public \(localhost\)"):
        fetch(tmp_path)
    assert hub.asked("/store/") == 0


def test_a_redirect_to_public_addresses_is_followed(
    hub: FakeHub, tmp_path: Path, public: dict[str, list[str]]
) -> None:
    public["localhost"] = ["8.8.4.4", "64:ff9b::808:808", "::ffff:8.8.8.8"]
    assert fetch(tmp_path) == FILES


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost.", "127.1", "2130706433", "0x7f000001", "0", "::", "::1", "fec0::1"],
)
def test_every_name_of_this_machine_is_private(host: str) -> None:
    assert not is_public(host)


def test_a_redirect_from_https_to_http_is_refused() -> None:
    at = SimpleNamespace
    source, target = at(scheme="https", host="8.8.8.8"), at(scheme="http", host="8.8.8.8")
    why = "it redirects from https to http (8.8.8.8)"
    for endpoint in ("https://8.8.8.8", "http://127.0.0.1"):
        assert objection_to_redirect(source, target, endpoint) == why
    assert not objection_to_redirect(target, source, "https://8.8.8.8")


def test_redirects_without_end_are_refused(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults = [
        Fault("/revision/", 302, {"Location": "/api/datasets/o/n/revision/main"}, times=99)
    ]
    with pytest.raises(DataError, match="more than 10 redirects"):
        fetch(tmp_path)


def test_a_data_set_that_was_renamed_is_found_under_its_old_name(
    hub: FakeHub, tmp_path: Path
) -> None:
    moved = {"Location": "/api/datasets/o/n/revision/main"}
    hub.commit("old/name", FILES)
    hub.faults = [Fault("/datasets/old/name/revision/", 307, moved)]
    assert fetch(tmp_path, "hf://datasets/old/name/data") == FILES

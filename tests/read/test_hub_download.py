"""Downloads: each byte once, whatever the server does, and never a wrong one."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants, hf_hub_download, scan_cache_dir

from hub_kit import TOKEN, FakeHub, Fault, etag_of, parquet, serving
from tokenmill.core.errors import (
    DamagedInputError,
    DataError,
    StorageError,
    UserError,
)
from tokenmill.core.installed import install_command
from tokenmill.read.places.hub import cache, client
from tokenmill.read.places.hub.names import parse_hub_name
from tokenmill.read.places.hub.place import Hub
from tokenmill.read.source import Access, FetchProgress
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
    monkeypatch.setattr(client, "pause", lambda seconds, check: waited.append(seconds))
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
        Fault("/store/", 503, {"Retry-After": "soon"}),
    ]
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}
    assert pauses == [7, 1, 42, 1]  # 7: instead of 1; 42: instead of 2
    where = "hf://datasets/o/n/data/a.parquet"
    assert caplog.messages[0] == f"{where}: status 429; retrying in 7 s"
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_server_that_asks_for_an_hour_is_not_waited_for(
    hub: FakeHub, tmp_path: Path, pauses: list[float]
) -> None:
    hub.faults = [Fault("/tree/", 429, {"Retry-After": "3600"}, times=10)]
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


def test_a_file_that_was_cut_off_in_the_cache_is_fetched_anew(hub: FakeHub, tmp_path: Path) -> None:
    fetch(tmp_path)
    (tmp_path / "datasets--o--n/blobs" / etag_of("a.parquet", LARGE)).write_bytes(LARGE[:100])
    assert fetch(tmp_path) == FILES
    assert hub.asked("/store/") == 3


def test_bytes_with_another_digest_are_thrown_away(hub: FakeHub, tmp_path: Path) -> None:
    hub.faults = [Fault("/store/", is_damaged=True)]
    with pytest.raises(DamagedInputError, match="its digest is"):
        fetch(tmp_path, f"{NAME}/a.parquet")
    assert not list(tmp_path.rglob("*.parquet"))
    assert fetch(tmp_path, f"{NAME}/a.parquet") == {"data/a.parquet": LARGE}


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


@pytest.mark.parametrize("num_pages", [1, 3])
def test_pages_without_entries_do_not_end_a_listing(
    hub: FakeHub, tmp_path: Path, num_pages: int
) -> None:
    hub.empty_pages = num_pages
    assert fetch(tmp_path) == FILES


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
    with pytest.raises(DamagedInputError, match="changed after it was listed") as raised:
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
    monkeypatch.setattr(cache.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StorageError, match="100 are free"):
        fetch(tmp_path)
    assert hub.asked("/resolve/") == 0


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


def test_a_data_set_that_was_renamed_is_found_under_its_old_name(
    hub: FakeHub, tmp_path: Path
) -> None:
    moved = {"Location": "/api/datasets/o/n/revision/main"}
    hub.commit("old/name", FILES)
    hub.faults = [Fault("/datasets/old/name/revision/", 307, moved)]
    assert fetch(tmp_path, "hf://datasets/old/name/data") == FILES

"""Builds from the Hub: the same documents from the cache, as a stream, and from local files."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from corpora import command, contents, documents, random_texts, tokenmill_here
from huggingface_hub import constants

import tokenmill
from hub_kit import FakeHub, parquet, serving
from tokenmill.cli.display import JsonDisplay, TextDisplay
from tokenmill.cli.summary import BUILD
from tokenmill.core.errors import (
    DataError,
    InputChangedError,
    OutputConflictError,
    UserError,
    VerificationError,
)
from tokenmill.read import sources, units
from tokenmill.read.source import FetchProgress
from tokenmill.read.sources import find_source
from tokenmill.run.progress import ProgressBoard
from tokenmill.store.canonical import read_sealed, write_sealed
from tokenmill.store.manifest import RUN_NAME, Run

NAME = "hf://datasets/o/n"
FILES = {
    f"data/train-0000{number}-of-00003.parquet": parquet(
        random_texts(600, seed=number), id=[f"{number}/{row}" for row in range(600)]
    )
    for number in range(3)
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.commit("o/n", FILES)
        yield hub


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 20_000)
    monkeypatch.setattr(units, "PIECE_BYTES", 4 << 10)


def local_files(folder: Path) -> Path:
    folder.mkdir()
    for path, data in FILES.items():
        (folder / Path(path).name).write_bytes(data)
    return folder


def test_cached_streamed_and_local_files_give_the_same_documents(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path, small_units: None
) -> None:
    options = {"workers": 1, "cache_dir": str(tmp_path / "cache"), "id_field": "id"}
    local = tokenmill.build([local_files(tmp_path / "files")], tokenizer_path, tmp_path / "local",
                            workers=1, id_field="id")  # fmt: skip
    cached = tokenmill.build([NAME], tokenizer_path, tmp_path / "cached", **options)
    streamed = tokenmill.build(
        [NAME], tokenizer_path, tmp_path / "streamed", streaming=True, **options
    )
    expected = documents(tmp_path / "local")
    assert len(expected) > 1500
    assert documents(tmp_path / "cached") == documents(tmp_path / "streamed") == expected
    assert len(streamed.dataset.shards) > 3
    books = [
        [(source.counts, source.bytes) for source in report.dataset.manifest.sources]
        for report in (local, cached, streamed)
    ]
    assert books[0] == books[1] == books[2]
    assert b"origin" not in msgspec.json.encode(local.dataset.manifest)


def test_the_manifest_says_where_a_source_came_from_and_that_is_not_asked_for_again(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    options = {"workers": 1, "cache_dir": str(tmp_path / "cache")}
    report = tokenmill.build([NAME], tokenizer_path, tmp_path / "out", **options)
    assert hub.asked("/revision/") == 1
    assert hub.asked("/resolve/") == len(FILES)
    sha = hub.revisions["o/n"]["main"]
    path = "data/train-00000-of-00003.parquet"
    source = report.dataset.manifest.sources[0]
    assert (source.name, source.origin) == (f"o/n/{path}", f"{NAME}@{sha}/{path}")
    assert report.run.identity["commits"] == {"o/n": sha}
    assert report.run.identity["inputs"][0].keys() == {"name", "bytes", "etag"}
    shutil.rmtree(tmp_path / "cache")
    hub.requests.clear()
    again = tokenmill.build([NAME], tokenizer_path, tmp_path / "out", **options)
    assert again.snapshot is None
    assert hub.asked("/resolve/") == 0


def test_the_commit_of_a_tokenizer_on_the_hub_is_recorded_and_enters_no_id(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    commit = hub.commit("gpt2", {"tokenizer.json": tokenizer_path.read_bytes()})
    local = local_files(tmp_path / "files")
    named = tokenmill.build([local], "gpt2", tmp_path / "named", workers=1)
    from_path = tokenmill.build([local], tokenizer_path, tmp_path / "from path", workers=1)
    assert named.run.tokenizer_commit == commit
    assert from_path.run.tokenizer_commit is msgspec.UNSET
    assert named.dataset.manifest == from_path.dataset.manifest


def test_another_cache_on_another_day_gives_the_same_bytes(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    for name in ("a", "b"):
        cache = tmp_path / f"cache-{name}"
        tokenmill.build([NAME], tokenizer_path, tmp_path / name, workers=1, cache_dir=str(cache))
        for path in cache.rglob("blobs/*"):
            os.utime(path, (1, 1))
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    again = tokenmill.build(
        [NAME], tokenizer_path, tmp_path / "a", workers=1, cache_dir=str(tmp_path / "cache-b")
    )
    assert again.snapshot is None


def test_a_branch_that_has_moved_is_refused_with_both_commits(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    options = {"workers": 1, "cache_dir": str(tmp_path / "cache"), "max_bad": 0.0}
    bad = {"data/bad.parquet": parquet([None, "a"])}
    old = hub.commit("o/n", bad)
    with pytest.raises(DataError):
        tokenmill.build([NAME], tokenizer_path, tmp_path / "out", **options)
    new = hub.commit("o/n", FILES)
    hub.requests.clear()
    for name, pinned in ((NAME, f"{NAME}@{old}"), (f"{NAME}/data", f"{NAME}@{old}/data")):
        with pytest.raises(InputChangedError) as raised:
            tokenmill.build([name], tokenizer_path, tmp_path / "out", **options)
        assert f"commits.o/n: was '{old}', is '{new}'" in raised.value.why
        assert raised.value.hint.startswith(f"name the old commit, as in {pinned}; or ")
    assert hub.asked("/resolve/") == 0
    options["max_bad"] = 0.9
    resumed = tokenmill.build([f"{NAME}@{old}"], tokenizer_path, tmp_path / "out", **options)
    assert resumed.dataset.manifest.totals.documents == 1
    hub.requests.clear()
    with pytest.raises(OutputConflictError, match="holds another dataset"):
        tokenmill.build([NAME], tokenizer_path, tmp_path / "out", **options)
    assert hub.asked("/resolve/") == 0


def test_a_killed_streamed_build_resumes_to_the_same_bytes(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    hub.commit("o/n", {"big.parquet": parquet(random_texts(15_000, seed=9), rows=1000)})
    arguments = ["build", NAME, "--tokenizer", tokenizer_path, "--streaming", "--workers", 2,
                 "--cache-dir", tmp_path / "cache", "--out"]  # fmt: skip
    clean = tokenmill_here(*arguments, tmp_path / "clean")
    assert clean.returncode == 0, clean.stderr
    out = tmp_path / "out"
    for count in (2, 6):
        process = subprocess.Popen(
            command(*arguments, out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and len([*out.glob("work/receipts/0*.json")]) < count:
            time.sleep(0.01)
        assert process.poll() is None, "it ended before it was killed"
        process.kill()
        process.wait()
    assert tokenmill_here(*arguments, out).returncode == 0
    assert contents(out) == contents(tmp_path / "clean")
    assert len(list((out / "tokens").glob("*.bin"))) > 20
    assert not (out / "work").exists()


def test_verify_finds_the_sources_again(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "library"))
    for name, streaming in (("cached", False), ("streamed", True)):
        report = tokenmill.build(
            [NAME], tokenizer_path, tmp_path / name, workers=1, streaming=streaming,
            cache_dir=str(tmp_path / "cache"),
        )  # fmt: skip
        for blob in (tmp_path / "cache").rglob("blobs/*"):
            blob.unlink()  # a cache may be emptied at any time
        hub.commit("o/n", {"other.parquet": b""})  # and the branch may move
        verified = tokenmill.verify(tmp_path / name, against_sources=True)
        assert verified.compared_documents == report.dataset.manifest.totals.documents
        hub.commit("o/n", FILES)
    assert len(list((tmp_path / "library").rglob("blobs/*"))) == 3
    assert not list((tmp_path / "cache").rglob("blobs/*"))


@pytest.mark.parametrize(
    ("origin", "etag"),
    [(f"{NAME}@main/a", "0" * 64), (f"{NAME}@{'0' * 40}/a", "../../x"), (f"{NAME}@{'0' * 40}", "")],
)
def test_a_record_that_names_no_file_is_refused(origin: str, etag: str) -> None:
    with pytest.raises(DataError, match="does not name a valid file on the Hub"):
        find_source(0, "a", origin, 1, etag, Path("a"))


def test_an_estimate_downloads_a_part_and_keeps_nothing(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    texts = random_texts(20_000, seed=3)
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    noise = random.Random(0)
    table = parquet(texts, rows=1000, junk=[noise.randbytes(1000) for _ in texts])
    hub.commit("o/n", {"a.parquet": table})
    hub.commit("o/lines", {"a.jsonl": lines})
    for name in (NAME, "hf://datasets/o/lines/a.jsonl"):
        found = tokenmill.estimate([name], tokenizer_path, cache_dir=str(tmp_path / "cache"))
        assert abs(found.documents / sum(map(bool, texts)) - 1) < 0.2
        assert not list(tmp_path.rglob("blobs"))
        at_most = len(table) // 2 if name == NAME else 24 << 20
        assert hub.sent_bytes < at_most


@pytest.mark.parametrize("change", [{"text_field": "content"}, {"eos": "nothing"}])
def test_what_cannot_be_carried_out_is_refused_before_a_download(
    hub: FakeHub,
    tmp_path: Path,
    tokenizer_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
) -> None:
    monkeypatch.setattr(sources, "SMALL_FETCH_BYTES", 0)
    with pytest.raises(UserError):
        tokenmill.build([NAME], tokenizer_path, tmp_path / "out",
                        cache_dir=str(tmp_path / "cache"), **change)  # fmt: skip
    assert not list(tmp_path.rglob("blobs"))


@pytest.mark.parametrize(
    ("inputs", "streaming", "what"),
    [
        ([NAME, "typo.jsonl"], False, "an input does not exist"),
        ([NAME, "text.txt", "lines.jsonl"], False, "the inputs mix plain text"),
        ([NAME, f"{NAME}/data/*"], False, "an input is named twice"),
        ([NAME, f"{NAME}/data"], True, "an input is named twice"),
        (["lines.jsonl"], True, "only applies to remote inputs"),
        (["hf://datasets/o/lines/a.jsonl"], True, "an input cannot be streamed"),
    ],
)
def test_names_are_refused_before_a_download(
    hub: FakeHub,
    tmp_path: Path,
    tokenizer_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    inputs: list[str],
    streaming: bool,
    what: str,
) -> None:
    hub.commit("o/lines", {"a.jsonl": b'{"text": "a"}\n'})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("a")
    (tmp_path / "lines.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(UserError, match=what):
        tokenmill.build(inputs, tokenizer_path, "out", cache_dir="cache", streaming=streaming)
    asks_names = inputs[-1].startswith("hf:")  # a local mistake is found without a request
    assert hub.asked("/resolve/") == 0
    assert bool(hub.requests) == asks_names
    assert not (tmp_path / "out").exists()


def test_an_estimate_of_many_compressed_files_asks_for_some_of_them(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    lines = b"".join(b'{"text": "%d"}\n' % number for number in range(50))
    hub.commit("o/many", {f"{number:05}.json.gz": gzip.compress(lines) for number in range(100)})
    found = tokenmill.estimate(["hf://datasets/o/many/*"], tokenizer_path,
                               cache_dir=str(tmp_path / "cache"))  # fmt: skip
    assert (found.files, found.documents) == (100, 5000)
    asked = {request.split()[0] for request in hub.requests if "/resolve/" in request}
    assert len(asked) < 32


def test_a_run_that_names_other_inputs_than_the_manifest_is_refused(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    tokenmill.build([NAME], tokenizer_path, tmp_path / "out", workers=1,
                    cache_dir=str(tmp_path / "cache"))  # fmt: skip
    run = read_sealed(tmp_path / "out" / RUN_NAME, Run)
    for change in ({"inputs": run.inputs[:-1]}, {"identity": {}}):
        write_sealed(tmp_path / "out" / RUN_NAME, msgspec.structs.replace(run, **change))
        with pytest.raises(VerificationError, match=r"run\.json names"):
            tokenmill.verify(tmp_path / "out", against_sources=True)


def test_local_files_and_the_hub_may_be_mixed(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    folder = local_files(tmp_path / "files")
    report = tokenmill.build([folder, NAME], tokenizer_path, tmp_path / "out", workers=1,
                             cache_dir=str(tmp_path / "cache"))  # fmt: skip
    names = [source.name for source in report.dataset.manifest.sources]
    assert names == [*(Path(path).name for path in FILES), *(f"o/n/{path}" for path in FILES)]


def test_the_cores_in_use_are_left_out_until_they_are_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moment = ProgressBoard(total_bytes=1, token_bytes=2, listeners=[]).snapshot()
    display = JsonDisplay(BUILD)
    display.progress(moment)
    display.progress(replace(moment, cpu_cores=1.5))
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event.get("cpu_cores") for event in events] == [None, 1.5]


def test_a_download_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    moment = FetchProgress(1_500_000, 3_000_000, 1, 2)
    display = JsonDisplay(BUILD)
    display.download(moment)
    display.download(replace(moment, done_bytes=1_600_000))  # too early for another line
    plain = TextDisplay(BUILD, verbose=False)
    plain.download(moment)  # too early for a line
    plain.meter._drawn_at -= 60
    plain.download(moment)
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {
        "event": "download",
        "done_bytes": 1_500_000,
        "total_bytes": 3_000_000,
        "done_files": 1,
        "num_files": 2,
    }
    assert shown.err == "      50.0%  downloaded 2 MB of 3 MB, 1 of 2 files\n"

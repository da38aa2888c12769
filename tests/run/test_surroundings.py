"""The machine around a build misbehaves: clocks, locales, pauses, forks, limits, lost folders."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from corpora import (
    built,
    command,
    contents,
    tokenmill,
    tokenmill_here,
    wait_for,
    write_corpus,
)

import tokenmill as package
from conftest import write_jsonl
from tokenmill.core.errors import StorageError
from tokenmill.run.units.encode import tokenizer_of

SECRET = "hf_doNotShowThisToAnybody"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, num_files=3, per_file=2000)
    return folder


@pytest.fixture(scope="module")
def clean(corpus: Path, tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build that nothing disturbs."""
    return built(corpus, tokenizer_path, tmp_path_factory.mktemp("clean") / "out")


def started(corpus: Path, tokenizer: Path, out: Path) -> subprocess.Popen[str]:
    """A build with two workers that has its first receipt."""
    arguments = command("build", corpus, "--tokenizer", tokenizer, "--out", out, "--workers", 2)
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: list((out / "work" / "receipts").glob("0*.json")))
    return process


def test_a_second_interrupt_ends_the_build_at_once_and_it_resumes(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started(corpus, tokenizer_path, out)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert process.returncode in (130, -signal.SIGINT)
    resumed = tokenmill_here("build", corpus, "--tokenizer", tokenizer_path, "--out", out)
    assert resumed.returncode == 0
    assert contents(out) == contents(clean)


def test_a_build_that_was_paused_continues(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started(corpus, tokenizer_path, out)
    everyone = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
    for one in everyone:
        one.suspend()
    time.sleep(1)
    for one in everyone:
        one.resume()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert contents(out) == contents(clean)


def test_a_clock_that_runs_backwards_changes_no_byte(
    corpus: Path,
    tokenizer_path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    package.build(str(corpus), tokenizer=str(tokenizer_path), out=tmp_path / "steady", workers=1)
    seconds = iter(range(1_000_000, 0, -3600))
    gmtime = time.gmtime
    monkeypatch.setattr(time, "time", lambda: float(next(seconds)))
    monkeypatch.setattr(time, "gmtime", lambda: gmtime(next(seconds)))
    package.build(str(corpus), tokenizer=str(tokenizer_path), out=tmp_path / "back", workers=1)
    assert contents(tmp_path / "back") == contents(tmp_path / "steady")


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONHASHSEED": "1"},
        {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8", "TZ": "Pacific/Kiritimati"},
    ],
    ids=["C locale and hash seed", "Turkish locale and time zone"],
)
def test_the_environment_changes_no_byte(
    environment: dict[str, str], corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = command("build", corpus, "--tokenizer", tokenizer_path, "--out", out)
    result = subprocess.run(arguments, env={**os.environ, **environment}, capture_output=True)
    assert result.returncode == 0, result.stderr
    assert contents(out) == contents(clean)


@pytest.mark.parametrize("name", ["gone", "unreadable"])
def test_a_stored_tokenizer_that_cannot_be_read_is_a_storage_error(
    name: str, tmp_path: Path
) -> None:
    unreadable = tmp_path / "unreadable" / "tokenizer.json"
    unreadable.parent.mkdir()
    unreadable.symlink_to(unreadable)
    setup: Any = SimpleNamespace(tokenizer_dir=str(tmp_path / name), tokenizer_source="")
    spec: Any = SimpleNamespace(kind="huggingface", encoding="")
    with pytest.raises(StorageError, match="cannot read the stored tokenizer of the build"):
        tokenizer_of(setup, spec)


def test_five_hundred_inputs_need_no_more_than_64_open_files(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    write_corpus(data, num_files=500, per_file=2)
    arguments = command("build", data, "--tokenizer", tokenizer_path, "--out", out)
    limited = ["bash", "-c", 'ulimit -Sn 64; exec "$@"', "limited", *arguments]
    result = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert package.open(out).manifest.totals.records == 1000


def test_a_forked_process_builds_after_its_parent_has_built(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    program = f"""
        import os, tokenmill
        def build(out):
            tokenmill.build({str(corpus)!r}, tokenizer={str(tokenizer_path)!r}, out=out, workers=1)
        build({str(tmp_path / "parent")!r})
        child = os.fork()
        if child == 0:
            build({str(tmp_path / "child")!r})
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """
    script = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    subprocess.run(script, check=True, timeout=60)
    assert contents(tmp_path / "child") == contents(tmp_path / "parent")


def test_an_output_folder_that_vanishes_is_a_storage_error(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = started(corpus, tokenizer_path, out)
    out.rename(tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "elsewhere")
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 6, errors
    assert str(out) in errors


def test_a_build_listens_on_no_port(corpus: Path, tokenizer_path: Path, tmp_path: Path) -> None:
    process = started(corpus, tokenizer_path, tmp_path / "out")
    everyone = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
    assert [one.net_connections() for one in everyone] == [[], [], []]
    process.kill()
    process.communicate()


def test_a_token_of_the_hub_is_written_nowhere(tokenizer_path: Path, tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "data.jsonl", ["some text"])
    out = tmp_path / "out"
    arguments = command("build", data, "--tokenizer", tokenizer_path, "--out", out, "--json")
    environment = {**os.environ, "HF_TOKEN": SECRET}
    built = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    failed = subprocess.run([*arguments, "--debug", "--text-field", "no"], env=environment,
                            capture_output=True, text=True)  # fmt: skip
    assert (built.returncode, failed.returncode) == (0, 1)
    written = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    said = (built.stdout + built.stderr + failed.stdout + failed.stderr).encode()
    assert written
    assert not any(SECRET.encode() in data for data in [*written, said])


@pytest.mark.soak
def test_ten_million_empty_documents_take_no_memory(tokenizer_path: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "out"
    with open(data, "wb") as file:
        for _ in range(1000):
            file.write(b'{"text":""}\n' * 10_000)
        file.write(b'{"text":"one"}\n')
    result = tokenmill(
        "build", data, "--tokenizer", tokenizer_path, "--out", out, "--json", small=False
    )
    assert result.returncode == 0, result.stderr
    finished = json.loads(result.stdout.splitlines()[-1])
    assert finished["totals"]["empty"] == 10_000_000
    assert finished["totals"]["documents"] == 1
    assert finished["peak_bytes"] < 1_500_000_000

"""Stopped anywhere, by anything, a build resumes and ends with the same bytes."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from corpora import (
    built,
    command,
    contents,
    tokenmill_here,
    wait_for,
    write_corpus,
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, num_files=4, per_file=4000)
    return folder


@pytest.fixture(scope="module")
def clean(corpus: Path, tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted build of the corpus."""
    return built(corpus, tokenizer_path, tmp_path_factory.mktemp("clean") / "out")


def start(corpus: Path, tokenizer: Path, out: Path, *options: object) -> subprocess.Popen[str]:
    arguments = command("build", corpus, "--tokenizer", tokenizer, "--out", out, *options)
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_at_random_moments(
    trials: int, corpus: Path, tokenizer: Path, clean: Path, folder: Path
) -> int:
    """Kill builds until there were `trials` kills; every build must end like the clean one."""
    moments = random.Random(1)
    kills = builds = 0
    while kills < trials:
        out = folder / f"out-{builds}"
        builds += 1
        for attempt in itertools.count(1):  # a slow machine gets more time with each attempt
            process = start(corpus, tokenizer, out, "--workers", 1 + builds % 2)
            try:
                process.communicate(timeout=moments.uniform(0.0, 1.5 + attempt))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
                assert not (out / "manifest.json").exists() or contents(out) == contents(clean)
            else:
                assert process.returncode == 0
                break
        assert contents(out) == contents(clean)
    return kills


def test_kills_at_random_moments_change_no_byte(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    assert kill_at_random_moments(4, corpus, tokenizer_path, clean, tmp_path) >= 4


@pytest.mark.soak
def test_a_thousand_kills_at_random_moments_change_no_byte(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    assert kill_at_random_moments(1000, corpus, tokenizer_path, clean, tmp_path) >= 1000


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_cleanly_and_prints_the_command_that_resumes(
    number: int, code: int, corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start(corpus, tokenizer_path, out, "--workers", 2)
    wait_for(lambda: len(psutil.Process(process.pid).children()) == 2)
    wait_for(lambda: list((out / "work" / "receipts").glob("0*.json")))
    workers = psutil.Process(process.pid).children()
    process.send_signal(number)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == code
    assert "finished unit" in errors
    assert "resume with the same command" in errors
    assert f"--out {out}" in errors
    wait_for(lambda: not any(worker.is_running() for worker in workers))
    assert (
        tokenmill_here("build", corpus, "--tokenizer", tokenizer_path, "--out", out).returncode == 0
    )
    assert contents(out) == contents(clean)


def test_a_killed_main_process_leaves_no_workers_behind(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    process = start(corpus, tokenizer_path, tmp_path / "out", "--workers", 2)
    wait_for(lambda: list((tmp_path / "out" / "work" / "receipts").glob("0*.json")))
    workers = psutil.Process(process.pid).children()
    process.kill()
    process.communicate()
    wait_for(lambda: not any(worker.is_running() for worker in workers), seconds=10)


def test_a_second_build_on_the_same_folder_is_refused_while_the_first_lives(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start(corpus, tokenizer_path, out)
    wait_for(lambda: (out / "work" / "job.json").exists())
    process.send_signal(signal.SIGSTOP)
    second = tokenmill_here("build", corpus, "--tokenizer", tokenizer_path, "--out", out)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert second.returncode == 4
    assert f"process {process.pid} on" in second.stderr


def test_a_full_disk_is_a_storage_error_and_the_build_resumes_after(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = command("build", corpus, "--tokenizer", tokenizer_path, "--out", out)
    limited = ["bash", "-c", 'ulimit -f 16; exec "$@"', "limited", *arguments]
    failed = subprocess.run(limited, capture_output=True, text=True, timeout=60)
    assert failed.returncode == 6, failed.stderr
    assert "File too large" in failed.stderr
    assert (
        tokenmill_here("build", corpus, "--tokenizer", tokenizer_path, "--out", out).returncode == 0
    )
    assert contents(out) == contents(clean)


def test_a_vanished_input_is_a_storage_error_and_the_build_resumes_when_it_is_back(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    paths = write_corpus(data, num_files=2, per_file=6000)
    hidden = tmp_path / "hidden.jsonl"
    process = start(data, tokenizer_path, out, "--workers", 1)
    wait_for(lambda: list((out / "work" / "receipts").glob("0*.json")))
    paths[1].rename(hidden)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 6, errors
    assert "part-1.jsonl" in errors
    hidden.rename(paths[1])
    assert (
        tokenmill_here("build", data, "--tokenizer", tokenizer_path, "--out", out).returncode == 0
    )


@pytest.fixture
def stopped(tokenizer_path: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """A build that ended before it published, all its units finished: one record is bad.

    It is (data, tokenizer, out), all of which may be changed.
    """
    data, tokenizer, out = tmp_path / "data", tmp_path / "tokenizer.json", tmp_path / "out"
    paths = write_corpus(data, num_files=2, per_file=100)
    paths[1].write_bytes(b"bad\n" + paths[1].read_bytes())
    tokenizer.write_bytes(tokenizer_path.read_bytes())
    arguments = ["build", data, "--tokenizer", tokenizer, "--out", out, "--workers", 2]
    assert tokenmill_here(*arguments).returncode == 3
    return data, tokenizer, out


def refusal(stopped: tuple[Path, Path, Path], *options: object) -> str:
    """What is said by the same command, which must refuse to resume."""
    data, tokenizer, out = stopped
    arguments = ("build", data, "--tokenizer", tokenizer, "--out", out, *options)
    result = tokenmill_here(*arguments)
    assert result.returncode == 8
    return result.stderr


def test_a_changed_input_refuses_to_resume_with_a_diff(stopped: tuple[Path, Path, Path]) -> None:
    data, tokenizer, _ = stopped
    changed = data / "part-1.jsonl"
    whole = changed.read_bytes()
    changed.write_bytes(whole + b"\n")
    assert "part-1.jsonl: had" in refusal(stopped)
    changed.write_bytes(whole)
    (data / "part-2.jsonl").write_bytes(whole)
    assert "part-2.jsonl: is a new input" in refusal(stopped)
    (data / "part-2.jsonl").unlink()
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert "tokenizer: was" in refusal(stopped)


def test_a_changed_recipe_refuses_to_resume_with_a_diff(stopped: tuple[Path, Path, Path]) -> None:
    said = refusal(stopped, "--id-field", "id")
    assert "policies.read.id_field: was None, is 'id'" in said


def test_workers_memory_and_limits_may_change_and_are_recorded(
    stopped: tuple[Path, Path, Path],
) -> None:
    import tokenmill as library
    from tokenmill.reports.contents import stored_run

    data, tokenizer, out = stopped
    os.utime(data / "part-0.jsonl", (1, 1))
    options = ["--workers", 1, "--memory", "600MB", "--max-bad", "1%"]
    result = tokenmill_here("build", data, "--tokenizer", tokenizer, "--out", out, *options)
    assert result.returncode == 0, result.stderr
    assert "comparing  part-0.jsonl: modified since the last build" in result.stderr
    attempts = stored_run(library.open(out)).attempts
    found = [(attempt.workers, attempt.max_bad) for attempt in attempts]
    assert found == [(2, 0.0001), (1, 0.01)]


def test_another_build_on_a_complete_dataset_is_refused_unless_it_may_overwrite(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for number in (1, 2):
        write_corpus(tmp_path / f"data-{number}", num_files=number, per_file=5)
    first = ["build", tmp_path / "data-1", "--tokenizer", tokenizer_path, "--out", out]
    second = ["build", tmp_path / "data-2", "--tokenizer", tokenizer_path, "--out", out]
    assert tokenmill_here(*first).returncode == 0
    refused = tokenmill_here(*second)
    assert (refused.returncode, "--overwrite" in refused.stderr) == (4, True)
    assert tokenmill_here(*second, "--overwrite").returncode == 0
    assert tokenmill_here("verify", out, "--against-sources").returncode == 0

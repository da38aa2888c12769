"""Several agents build one dataset: the bytes are those of one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from corpora import built, command, contents, tokenmill_here, wait_for, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, num_files=6, per_file=600)
    return folder


@pytest.fixture(scope="module")
def clean(corpus: Path, tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build by one agent."""
    return built(corpus, tokenizer_path, tmp_path_factory.mktemp("clean") / "out")


def started(corpus: Path, tokenizer: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    arguments = command("build", corpus, "--tokenizer", tokenizer, "--out", out, *options)
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str]) -> int:
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    return process.returncode


def test_three_agents_make_the_dataset_of_one_and_leave_nothing_behind(
    corpus: Path, clean: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    agents = [
        started(corpus, tokenizer_path, out, "--workers", "1", "--agent", f"{index}/3")
        for index in range(3)
    ]
    assert [ended(agent) for agent in agents] == [0, 0, 0]
    assert contents(out) == contents(clean)
    assert not (out / "work").exists()


def test_what_a_killed_agent_held_is_done_by_the_same_command_without_a_shard(
    corpus: Path, clean: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    agent = started(corpus, tokenizer_path, out, "--workers", "1", "--agent", "0/2")
    wait_for(lambda: any((out / "work" / "receipts").glob("*.json")))
    agent.kill()
    agent.communicate()
    result = tokenmill_here("build", corpus, "--tokenizer", tokenizer_path, "--out", out)
    assert result.returncode == 0, result.stderr
    assert "reused" in result.stdout
    assert contents(out) == contents(clean)


def test_limits_fall_where_they_fall_for_one_agent(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    limit = ("--max-documents", "1000", "--workers", "1")
    one = started(corpus, tokenizer_path, tmp_path / "one", *limit)
    two = [
        started(corpus, tokenizer_path, tmp_path / "two", *limit, "--agent", f"{index}/2")
        for index in range(2)
    ]
    assert [ended(agent) for agent in (one, *two)] == [0, 0, 0]
    assert contents(tmp_path / "two") == contents(tmp_path / "one")


def test_an_agent_that_was_started_for_another_build_is_refused(
    corpus: Path, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENMILL_JOB", "0123456789abcdef")
    out = tmp_path / "out"
    result = tokenmill_here(
        "build", corpus, "--tokenizer", tokenizer_path, "--out", out, "--agent", "0/2"
    )
    assert result.returncode == 4
    assert "the output is not the one that this agent was started for" in result.stderr
    assert "TOKENMILL_JOB is 0123456789abcdef; the output holds no job" in result.stderr
    assert not (out / "manifest.json").exists()


def test_agents_do_not_overwrite(corpus: Path, tokenizer_path: Path, tmp_path: Path) -> None:
    arguments = ("build", corpus, "--tokenizer", tokenizer_path, "--out", tmp_path / "out")
    result = tokenmill_here(*arguments, "--agent", "0/2", "--overwrite")
    assert result.returncode == 2
    assert "--overwrite cannot be combined with --agent" in result.stderr

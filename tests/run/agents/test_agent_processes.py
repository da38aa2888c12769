"""Agents as processes on one folder: killed, stopped and begun again, they make the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from corpora import built, contents, tokenmill_here, wait_for, write_corpus

QUICK_AGENTS = Path(__file__).parents[1] / "quick_agents.py"
Agent = subprocess.Popen[str]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, num_files=4, per_file=3000)
    return folder


@pytest.fixture(scope="module")
def clean(corpus: Path, tokenizer_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The build of the corpus by one process."""
    return built(corpus, tokenizer_path, tmp_path_factory.mktemp("clean") / "out")


class Agents:
    """Starts agents of one build."""

    def __init__(self, corpus: Path, tokenizer: Path, out: Path) -> None:
        self.out, self.log = out, out.with_suffix(".claims")
        self._options = [str(corpus), "--tokenizer", str(tokenizer), "--out", str(out)]

    def start(self, *options: str, prefix: Sequence[str] = ()) -> Agent:
        command = [*prefix, sys.executable, str(QUICK_AGENTS), "build", *self._options, *options]
        return subprocess.Popen(
            [*command, "--workers", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"CLAIM_LOG": str(self.log)},
        )

    def start_all(self, count: int) -> list[Agent]:
        return [self.start("--agent", f"{index}/{count}") for index in range(count)]

    @property
    def runs(self) -> Counter[str]:
        """How often each item was claimed."""
        return Counter(self.log.read_text().split()) if self.log.exists() else Counter()


def finish(agents: Sequence[Agent]) -> None:
    for agent in agents:
        said, _ = agent.communicate(timeout=250)
        assert agent.returncode == 0, said


def kill_and_finish(agents: Agents, rounds: int, moments: random.Random) -> int:
    """Kill all agents at random moments, in rounds of different numbers; then let one finish."""
    kills = 0
    for _ in range(rounds):
        running = agents.start_all(moments.randint(1, 3))
        time.sleep(moments.uniform(0.5, 5))
        for agent in running:
            kills += agent.poll() is None
            agent.kill()
            agent.communicate()
    last = moments.choice(((), ("--agent", "0/1")))
    finish([agents.start(*last)])
    return kills


def test_agents_that_begin_at_once_share_the_items_and_run_none_twice(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    agents = Agents(corpus, tokenizer_path, tmp_path / "out")
    finish(agents.start_all(3))
    assert contents(agents.out) == contents(clean)
    assert set(agents.runs.values()) == {1}


def test_killed_agents_are_replaced_by_any_number_of_others(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    agents = Agents(corpus, tokenizer_path, tmp_path / "out")
    kill_and_finish(agents, 2, random.Random(3))
    assert contents(agents.out) == contents(clean)


def test_an_agent_that_was_stopped_finds_the_dataset_published(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    """It holds an item when SIGSTOP comes; others take it over; it wakes up after the end."""
    agents = Agents(corpus, tokenizer_path, tmp_path / "out")
    zombie = agents.start("--agent", "0/2")
    wait_for(lambda: agents.runs, 120)
    os.kill(zombie.pid, signal.SIGSTOP)
    finish([agents.start("--agent", "1/2")])
    os.kill(zombie.pid, signal.SIGCONT)
    finish([zombie])
    assert contents(agents.out) == contents(clean)


def test_limits_fall_where_they_fall_for_one_agent(
    corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    one, two = (Agents(corpus, tokenizer_path, tmp_path / name) for name in ("one", "two"))
    limit = ("--max-documents", "1000")
    finish([one.start(*limit), *(two.start(*limit, "--agent", f"{i}/2") for i in range(2))])
    assert contents(two.out) == contents(one.out)


def test_an_agent_that_was_started_for_another_build_is_refused(
    corpus: Path, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENMILL_JOB", "0123456789abcdef")
    out = tmp_path / "out"
    agent = ("build", corpus, "--tokenizer", tokenizer_path, "--out", out, "--agent", "0/2")
    result = tokenmill_here(*agent)
    assert result.returncode == 4
    assert "the output is not the one that this agent was started for" in result.stderr
    assert "TOKENMILL_JOB is 0123456789abcdef; the output holds no job" in result.stderr
    assert not (out / "manifest.json").exists()
    result = tokenmill_here(*agent, "--overwrite")
    assert result.returncode == 2
    assert "--overwrite cannot be combined with --agent" in result.stderr


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_two_hundred_kills_change_no_byte(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    kills = trial = 0
    while kills < 200:
        agents = Agents(corpus, tokenizer_path, tmp_path / f"out-{trial}")
        kills += kill_and_finish(agents, 3, random.Random(trial))
        assert contents(agents.out) == contents(clean), trial
        shutil.rmtree(agents.out)
        trial += 1


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_sixteen_agents_begin_at_once(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    agents = Agents(corpus, tokenizer_path, tmp_path / "out")
    finish(agents.start_all(16))
    assert contents(agents.out) == contents(clean)
    assert set(agents.runs.values()) == {1}


@pytest.mark.cluster
def test_agents_with_equal_process_ids_do_not_meet(
    corpus: Path, tokenizer_path: Path, clean: Path, tmp_path: Path
) -> None:
    """Two pid namespaces on one folder, as two hosts have them."""
    prefix = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*prefix, "true"]).returncode:
        pytest.skip("this machine allows no pid namespaces (unshare --pid)")
    agents = Agents(corpus, tokenizer_path, tmp_path / "out")
    shards = ("0/2", "1/2")
    finish([agents.start("--agent", shard, prefix=prefix) for shard in shards])
    assert contents(agents.out) == contents(clean)

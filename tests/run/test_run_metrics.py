"""The metrics of builds and counts: what the file of `--metrics` holds at the end."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from corpora import command, write_corpus
from prometheus_client.openmetrics.parser import text_string_to_metric_families

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import DataError
from tokenmill.read.source import FetchProgress
from tokenmill.run.launch import AgentShare
from tokenmill.run.metrics import writing_metrics
from tokenmill.run.progress import Snapshot
from tokenmill.run.task import RunEvents

Values = dict[str, dict[tuple[str, ...], float]]
SNAPSHOT = Snapshot(
    elapsed_seconds=10.0, done_bytes=25, total_bytes=100, read_bytes=50, written_bytes=40,
    documents=7, tokens=20, rejected=1, num_workers=2, cpu_cores=1.5, memory_bytes=300,
    peak_bytes=400, resumed_bytes=5, resumed=None, num_awaited=0,
    rejected_by_reason={"invalid-json": 1}, stage_seconds={"read": 0.5},
)  # fmt: skip
AT_ALL_TIMES = {"finished", "updated_timestamp_seconds"}


def values_in(path: Path) -> Values:
    """Samples by the name of their family and the values of their labels."""
    return {
        family.name: {tuple(each.labels.values()): each.value for each in family.samples}
        for family in text_string_to_metric_families(path.read_text())
    }


def names_in(values: Values, prefix: str) -> set[str]:
    return {name.removeprefix(prefix) for name in values}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = write_jsonl(tmp_path / "a.jsonl", ["one two three", "four", "five six"])
    path.write_text(path.read_text() + '{bad\n{"no": "text"}\n{bad\n')
    return path


def test_a_build_leaves_what_it_did(source: Path, tokenizer_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "corpus.om"
    options = {"workers": 1, "max_bad": 0.5, "sequence_length": 8, "metrics": path}
    report = tokenmill.build(source, tokenizer_path, tmp_path / "out", **options)
    found = values_in(path)
    tokens, total = report.manifest.totals.tokens, ("corpus",)
    wanted = {
        "documents": {total: 3},
        "tokens": {total: tokens},
        "rejected": {("corpus", "invalid-json"): 2, ("corpus", "missing-field"): 1},
        "read_bytes": {total: report.manifest.totals.record_bytes},
        "written_bytes": {total: 2 * tokens},
        "progress_ratio": {total: 1},
        "stage_progress_ratio": {("corpus", "packing"): 1, ("corpus", "writing"): 1},
        "finished": {total: 1},
    }
    assert {name: found[f"tokenmill_build_{name}"] for name in wanted} == wanted
    others = {"elapsed_seconds", "workers", "cpu_cores", "memory_bytes", "peak_memory_bytes"}
    others |= {"stage_seconds", "updated_timestamp_seconds"}
    assert names_in(found, "tokenmill_build_") - {"eta_seconds"} == others | set(wanted)
    assert found["tokenmill_build_memory_bytes"][total] > 10_000_000


def test_a_count_has_words_and_names_of_its_own(source: Path, tmp_path: Path) -> None:
    options = {"split": "whitespace", "workers": 1, "max_bad": 0.5, "metrics": tmp_path / "c.om"}
    tokenmill.count_words(source, tmp_path / "counts", **options)
    found = values_in(tmp_path / "c.om")
    assert found["tokenmill_count_words"] == {("c",): 6}
    assert found["tokenmill_count_finished"] == {("c",): 1}
    assert "tokenmill_count_written_bytes" not in found


def test_a_build_that_fails_says_that_it_has_not_finished(
    source: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "corpus.om"
    with pytest.raises(DataError):
        tokenmill.build(source, tokenizer_path, tmp_path / "out", workers=1, metrics=path)
    assert values_in(path)["tokenmill_build_finished"] == {("corpus",): 0}


def test_every_callback_reaches_the_file_and_whoever_listened_before(tmp_path: Path) -> None:
    heard: list[object] = []
    path = tmp_path / "corpus.om"
    events = RunEvents[object](
        on_progress=heard.append,
        on_download=heard.append,
        on_pack=lambda *progress: heard.append(progress),
    )
    download = FetchProgress(done_bytes=1, total_bytes=4, done_files=0, num_files=1)
    stopped = pytest.raises(KeyboardInterrupt)
    with stopped, writing_metrics(events, str(path), "build") as listening:
        assert names_in(values_in(path), "tokenmill_build_") == AT_ALL_TIMES
        listening.on_download(download)
        listening.on_progress(SNAPSHOT)
        listening.on_pack("packing", 1, 2)
        raise KeyboardInterrupt
    assert heard == [download, SNAPSHOT, ("packing", 1, 2)]
    found = values_in(path)
    stages = {("corpus", "download"): 0.25, ("corpus", "packing"): 0.5}
    assert found["tokenmill_build_stage_progress_ratio"] == stages
    assert found["tokenmill_build_progress_ratio"] == {("corpus",): 0.25}
    assert found["tokenmill_build_eta_seconds"] == {("corpus",): 37.5}


def test_an_agent_does_not_guess_when_all_are_done(tmp_path: Path) -> None:
    share = AgentShare(3, 4)
    with writing_metrics(RunEvents(), str(tmp_path / "a.om"), "build", share) as listening:
        listening.on_progress(replace(SNAPSHOT, documents=8))
    found = values_in(tmp_path / "a-3.om")
    assert found["tokenmill_build_documents"] == {("a", "3"): 8}
    assert "tokenmill_build_eta_seconds" not in found


def test_agents_of_one_command_write_one_file_each(tokenizer_path: Path, tmp_path: Path) -> None:
    corpus, out = tmp_path / "corpus", tmp_path / "out"
    write_corpus(corpus, num_files=4, per_file=100)
    options = ("build", corpus, "--tokenizer", tokenizer_path, "--out", out, "--workers", "1")
    options += ("--max-bad", "50%", "--metrics", tmp_path / "a.om")
    agents = [
        subprocess.Popen(command(*options, "--agent", f"{index}/2"), stderr=subprocess.DEVNULL)
        for index in range(2)
    ]
    assert [agent.wait(120) for agent in agents] == [0, 0]
    both = [values_in(tmp_path / f"a-{index}.om") for index in range(2)]
    assert [each["tokenmill_build_finished"] for each in both] == [{("a", "0"): 1}, {("a", "1"): 1}]
    documents = [sum(each.get("tokenmill_build_documents", {}).values()) for each in both]
    assert sum(documents) == tokenmill.open(out).manifest.totals.documents

"""Files of metrics: their text, their labels, and how they are replaced."""

from __future__ import annotations

import logging
import os
import resource
import shutil
import subprocess
import threading
from pathlib import Path

import pytest
from prometheus_client import parser as prometheus
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as open_metrics

from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.store.open_metrics import MAX_LABELS, Family, MetricsFile

HOSTILE = 'a"b\\c\nd}\x07# EOF\x1b[31m\u202e\udc80 é'
SHOWN = 'a"b\\c\nd}\\x07# EOF\\x1b[31m\\u202e\\udc80 é'
WRITTEN = r"a\"b\\c\nd}\\x07# EOF\\x1b[31m\\u202e\\udc80 é"
FAMILIES = [
    Family("read_bytes", "counter", "Bytes read.", 5),
    Family("progress_ratio", "gauge", "Share done.", 0.5),
    Family("tokens", "counter", "Tokens.", {HOSTILE: 3, "code": 2}, "source"),
    Family("rejected", "counter", "Records rejected.", {}, "reason"),
]
NOW = 1_800_000_000.5
EXPECTED = """\
# HELP tokenmill_build_read_bytes_total Bytes read.
# TYPE tokenmill_build_read_bytes_total counter
# UNIT tokenmill_build_read_bytes_total bytes
tokenmill_build_read_bytes_total{run="corpus",agent="3"} 5
# HELP tokenmill_build_progress_ratio Share done.
# TYPE tokenmill_build_progress_ratio gauge
# UNIT tokenmill_build_progress_ratio ratio
tokenmill_build_progress_ratio{run="corpus",agent="3"} 0.5
# HELP tokenmill_build_tokens_total Tokens.
# TYPE tokenmill_build_tokens_total counter
tokenmill_build_tokens_total{run="corpus",agent="3",source="HOSTILE"} 3
tokenmill_build_tokens_total{run="corpus",agent="3",source="code"} 2
# HELP tokenmill_build_updated_timestamp_seconds When this file was written.
# TYPE tokenmill_build_updated_timestamp_seconds gauge
# UNIT tokenmill_build_updated_timestamp_seconds seconds
tokenmill_build_updated_timestamp_seconds{run="corpus",agent="3"} 1800000000.5
# EOF
"""


@pytest.fixture(autouse=True)
def _fixed_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tokenmill.store.open_metrics.time.time", lambda: NOW)


def parsed(text: str) -> list[Metric]:
    return list(open_metrics.text_string_to_metric_families(text))


def metric(
    name: str, kind: str, about: str, unit: str, *samples: tuple[str, object, float]
) -> Metric:
    made = Metric(name, about, kind, unit)
    for suffix, labels, value in samples:
        made.add_sample(name + suffix, labels, value)
    return made


def written(path: Path, share: tuple[str, int] | None = None) -> str:
    file = MetricsFile(path, "tokenmill_build", lambda: FAMILIES, share)
    file.write()
    return file.path.read_text()


def test_the_text_is_open_metrics_with_units_and_an_end(tmp_path: Path) -> None:
    run, name = {"run": "corpus"}, "tokenmill_build"
    assert parsed(written(tmp_path / "corpus.om")) == [
        metric(f"{name}_read_bytes", "counter", "Bytes read.", "bytes", ("_total", run, 5)),
        metric(f"{name}_progress_ratio", "gauge", "Share done.", "ratio", ("", run, 0.5)),
        metric(
            *(f"{name}_tokens", "counter", "Tokens.", ""),
            ("_total", run | {"source": SHOWN}, 3),
            ("_total", run | {"source": "code"}, 2),
        ),
        metric(
            *(f"{name}_updated_timestamp_seconds", "gauge", "When this file was written."),
            *("seconds", ("", run, NOW)),
        ),
    ]


def test_the_collector_of_node_exporter_gets_counters_by_their_whole_names(tmp_path: Path) -> None:
    text = written(tmp_path / "corpus.prom", ("agent", 3))
    assert text.replace(WRITTEN, "HOSTILE").splitlines() == EXPECTED.splitlines()


def test_both_formats_have_the_same_values(tmp_path: Path) -> None:
    strict = parsed(written(tmp_path / "corpus.om"))
    text = written(tmp_path / "corpus.prom")
    lenient = list(prometheus.text_string_to_metric_families(text))
    assert [each.samples for each in lenient] == [each.samples for each in strict]
    assert [each.type for each in lenient] == ["counter", "gauge", "counter", "gauge"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_no_fault(tmp_path: Path) -> None:
    text = written(tmp_path / "corpus.prom")
    check = ["promtool", "check", "metrics"]
    result = subprocess.run(check, input=text, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_labels_beyond_a_number_are_added_up_and_long_ones_cut() -> None:
    values = {f"source {number}": 2.0 for number in range(MAX_LABELS - 2)}
    more = {"x" * 100 + "a": 1.0, "x" * 100 + "b": 2.0, "other": 3.0, "rest": 4.0}
    counter = Family("tokens", "counter", "Tokens.", values | more, "source")
    assert counter.samples() == values | {"x" * 100: 3.0, "other": 7.0}
    gauge = Family("epochs", "gauge", "Passes.", values | more, "source")
    assert gauge.samples() == values | {"x" * 100: 1.0}


def test_agents_and_ranks_have_files_of_their_own(tmp_path: Path) -> None:
    for rank in (0, 12):
        written(tmp_path / "loader.v1.prom", ("rank", rank))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "loader.v1-0.prom",
        "loader.v1-12.prom",
    ]


def test_a_file_is_written_at_once_and_then_every_five_seconds(tmp_path: Path) -> None:
    clock = iter([100.0, *sorted([*range(100, 113), 100, 105, 110])])
    file = MetricsFile(tmp_path / "a.om", "tokenmill", lambda: FAMILIES, clock=clock.__next__)
    written_at = []
    for second in range(100, 113):
        if file.path.exists():
            file.path.unlink()
        file.offer()
        if file.path.exists():
            written_at.append(second)
    assert written_at == [100, 105, 110]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    tokens = {f"{number:090}": number for number in range(MAX_LABELS)}
    families = [Family("tokens", "counter", "Tokens.", tokens, "source")]
    file = MetricsFile(tmp_path / "a.om", "tokenmill", lambda: families)
    file.write()
    writer = threading.Thread(target=lambda: [file.write() for _ in range(100)])
    writer.start()
    seen = set()
    while writer.is_alive():
        seen.add(file.path.read_text())
    assert len(seen) == 1
    assert len(parsed(seen.pop())[0].samples) == MAX_LABELS
    assert list(tmp_path.iterdir()) == [file.path]


def test_a_full_disk_is_told_once_and_the_file_comes_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = MetricsFile(tmp_path / "a.om", "tokenmill_build", lambda: FAMILIES)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, hard))
    try:
        for _ in range(3):
            file.write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caplog.record_tuples == [
        (
            *("tokenmill.store.open_metrics", logging.WARNING),
            f"cannot write metrics to {file.path}: File too large; going on without",
        )
    ]
    assert not list(tmp_path.iterdir())
    file.write()
    assert len(parsed(file.path.read_text())) == 4


def test_a_folder_is_no_metrics_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the metrics file needs a name"):
        MetricsFile(tmp_path, "tokenmill", lambda: FAMILIES)


def test_a_process_that_was_forked_leaves_the_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = MetricsFile(tmp_path / "a.om", "tokenmill", lambda: FAMILIES)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    file.write()
    assert not list(tmp_path.iterdir())


def test_only_a_file_of_metrics_is_replaced(tmp_path: Path) -> None:
    other = tmp_path / "manifest.json"
    other.write_text("{}")
    with pytest.raises(OutputConflictError, match="already exists"):
        MetricsFile(other, "tokenmill_build", list)
    assert other.read_text() == "{}"
    link = tmp_path / "link.prom"
    link.symlink_to(tmp_path / "target.prom")
    for _ in range(2):
        MetricsFile(link, "tokenmill_build", list).write()
    assert link.is_symlink()
    assert (tmp_path / "target.prom").read_text().startswith("# HELP tokenmill_build_updated")

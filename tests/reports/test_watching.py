"""Watching runs: builds that are killed and resumed, exports, metrics, and what is hostile."""

from __future__ import annotations

import contextlib
import http.client
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from corpora import on_terminal, tokenmill, wait_for, write_corpus

from browser_kit import CHROMIUM, accessibility_problems, needs_chromium, opened_page
from conftest import Printed
from tokenmill import build
from tokenmill.cli import main
from tokenmill.load.export import folder as export_folder
from tokenmill.load.export.rows.exporting import export
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import pack
from tokenmill.reports import status, watching
from tokenmill.reports.page import server as page_server
from tokenmill.reports.page.live import live_page
from tokenmill.reports.page.server import PageServer
from tokenmill.reports.watching import Run, Watched, run_facts
from tokenmill.run.agreement import JobRecord
from tokenmill.run.journal.agents import AgentState, Tallies, state_name
from tokenmill.run.progress import RunningUnit
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.objects.folder import FolderStore
from tokenmill.store.objects.opening import open_store
from tokenmill.store.open_metrics import Gauge, read_gauges

QUICK_AGENTS = Path(__file__).parents[1] / "run" / "quick_agents.py"
HOSTILE = '<script>alert(1)</script>\x1b[2J\u202e"'


def begin(out: Path | str, **tallies: Any) -> None:
    """A build by one agent that has worked for 100 s."""
    store = open_store(str(out))
    store.create(
        "work/job.json", canonical_json(sealed(JobRecord(job="a", identity=msgspec.Raw(b"{}"))))
    )
    said = Tallies(documents=10, tokens=1000, bytes_total=1000, **tallies)
    state = AgentState(
        agent="host-00000001", counter=5, workers=2, seconds=100, clock=time.time(), tallies=said,
        beat_seconds=2,
    )  # fmt: skip
    store.replace(state_name(state.agent), canonical_json(state))


@contextlib.contextmanager
def served(*names: str | Path) -> Iterator[PageServer]:
    with (
        watching.watching([str(name) for name in names]) as runs,
        PageServer(0, lambda: [run.now for run in runs]) as server,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def asked(server: PageServer, path: str, method: str = "GET", host: str | None = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    answer.text = answer.read().decode()  # type: ignore[attr-defined]
    connection.close()
    return answer


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks and draws often; an agent is silent after a second."""
    monkeypatch.setattr(watching, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(watching, "COMPLETE_SECONDS", 0.1)
    monkeypatch.setattr(watching, "MOST_TIME", 1.0)
    monkeypatch.setattr(page_server, "REDRAW_SECONDS", 0.1)
    monkeypatch.setattr(status, "LEAST_SILENCE", 1.0)


def follow_through_a_kill(out: Path, corpus: Path, state: Callable[[], str]) -> None:
    """Start a build after its watch, kill it, resume it, and see each state on the way."""

    def start() -> subprocess.Popen[bytes]:
        slow = ("--tokenizer", "python:python_tokenizers:SlowBytes", "--workers", "1")
        command = [sys.executable, QUICK_AGENTS, "build", corpus, *slow, "--out", out]
        return subprocess.Popen(command, stderr=subprocess.PIPE)

    wait_for(lambda: state() == "waiting")
    with start() as process:
        try:
            wait_for(lambda: state() == "encoding")
            wait_for(lambda: any(out.glob("work/receipts/*")))
        finally:
            process.kill()
    wait_for(lambda: state() == "silent")
    with start() as process:
        wait_for(lambda: state() == "encoding")
        wait_for(lambda: state() == "complete")
        _, errors = process.communicate()
    assert process.returncode == 0, errors


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, num_files=2, per_file=800)
    return folder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    folder = tmp_path_factory.mktemp("dataset")
    write_corpus(folder / "data", num_files=1, per_file=100)
    return build(folder / "data", tokenizer_path, folder / "out", workers=1).dataset


def test_only_who_knows_the_token_gets_the_page(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        path, port = f"/{server.token}/", server.server_port
        assert asked(server, path).status == 200
        assert asked(server, path, host=f"localhost:{port}").status == 200
        missing = (
            "/",
            "//",
            "/x/",
            path[:-1],
            f"{path}../page.css",
            f"{path}server.py",
            f"x{path}",
        )
        for wrong in missing:
            assert asked(server, wrong).status == 404, wrong
        assert asked(server, path, host=f"evil.example:{port}").status == 404
        assert asked(server, path, host=f"127.0.0.1:{port + 1}").status == 404
        assert asked(server, path, method="POST").status == 501
        assert server.server_address[0] == "127.0.0.1"


def test_every_answer_has_a_strict_policy(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        for name in ("", "page.css", "watch.js", "none"):
            answer = asked(server, f"/{server.token}/{name}")
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; connect-src 'self'; ")
            assert "unsafe-inline" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert answer.headers["Cache-Control"] == "no-store"
        assert answer.status == 404


@pytest.mark.usefixtures("quickly")
def test_a_watch_begun_before_a_build_follows_it_through_a_kill_to_its_end(
    corpus: Path, tmp_path: Path
) -> None:
    """In a browser too, if there is one."""
    seen: list[Watched] = []
    with served(tmp_path / "out") as server, contextlib.ExitStack() as stack:
        page = stack.enter_context(opened_page(server.address)) if CHROMIUM else None

        def state() -> str:
            seen.extend(server.view())
            return page.inner_text("#state-0 .state") if page else seen[-1].state

        follow_through_a_kill(tmp_path / "out", corpus, state)
        if page:
            page.wait_for_function("document.title.startsWith('complete')")
            assert "1,572" in page.inner_text("#body-0")
    at_work = [each for each in seen if each.state == "encoding" and each.status]
    assert any(each.remaining and each.speed[0] > 0 for each in at_work)
    assert any(each.status.memory_bytes and each.status.disk_bytes_at_end for each in at_work)
    (note,) = {re.sub(r"\d+:\d+", "T", each.note) for each in seen if each.state == "silent"}
    assert note == "the last report came T ago; the same command resumes it"
    last = server.view()[0]
    assert (last.state, last.share) == ("complete", 1.0)
    assert last.status.documents == 1572  # type: ignore[union-attr]


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
@pytest.mark.usefixtures("quickly")
def test_the_page_is_narrow_enough_accessible_and_keeps_the_focus(
    tmp_path: Path, width: int, scheme: str
) -> None:
    begin(tmp_path, bytes_done=300, rejected={"invalid-json": 3})
    with served(tmp_path) as server, opened_page(server.address, width, scheme) as page:
        wait_for(lambda: "invalid-json 3" in page.inner_text("#body-0"))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert accessibility_problems(page) == []
        page.focus("#body-0 .wide")
        begin(tmp_path, bytes_done=600, rejected={"invalid-json": 4})
        wait_for(lambda: "invalid-json 4" in page.inner_text("#body-0"))
        assert page.evaluate("document.activeElement.className") == "wide"
        assert page.is_hidden("#lost")


def test_too_many_connections_are_closed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "MAX_CONNECTIONS", 2)
    with served(tmp_path) as server:
        connections = []
        for _ in range(2):
            connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
            connection.request("GET", f"/{server.token}/events")
            assert connection.getresponse().status == 200
            connections.append(connection)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            asked(server, f"/{server.token}/")
        for connection in connections:
            connection.close()
        wait_for(lambda: _answers(server))


def test_clients_that_take_too_long_over_a_request_are_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(page_server, "MAX_SECONDS", 0.3)
    with (
        served(tmp_path) as server,
        socket.create_connection(("127.0.0.1", server.server_port)) as slow,
    ):
        slow.sendall(b"GET / HTTP/1.1\r\n")

        def drips_and_is_answered() -> bool:
            with contextlib.suppress(OSError):
                slow.sendall(b"X: 1\r\n")
            return _answers(server)

        wait_for(drips_and_is_answered)


def _answers(server: PageServer) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        return bool(asked(server, f"/{server.token}/").status == 200)
    return False


def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    out = tmp_path / "<b>out"
    begin(
        out, bytes_done=300, rejected={HOSTILE: 3}, last_unit=RunningUnit(HOSTILE, 3, 50),
        stages={HOSTILE: 3.0},
    )  # fmt: skip
    (out / "work/damaged").mkdir()
    (out / "work/damaged/00000007.json").write_bytes(msgspec.json.encode({"why": HOSTILE}))
    metrics = tmp_path / "m.prom"
    metrics.write_text(f'tokenmill_x{{source="{HOSTILE[:30]}"}} 1\n')
    runs = [Run(str(out)), Run(str(metrics))]
    for run in runs:
        run.read()
    page = live_page([run.now for run in runs])
    assert page.count("&lt;script&gt;") == 4
    assert not re.search("<script>|<b>|\x1b|\u202e", page)


@pytest.mark.parametrize("name", ["work/job.json", "manifest.json"])
def test_what_cannot_be_read_is_said_and_what_was_known_stays(tmp_path: Path, name: str) -> None:
    begin(tmp_path, bytes_done=300)
    run = Run(str(tmp_path))
    run.read()
    assert (run.now.headline, run.now.note) == ("encoding, 30%", "")
    (tmp_path / name).write_bytes(b"\xff" * 100)
    run.read()
    assert run.now.headline == "encoding, 30%"
    assert re.fullmatch(r"cannot read: .+", run.now.note)


def test_a_store_that_does_not_answer_stops_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path, bytes_done=300)
    answered = threading.Event()

    def slow(out: str) -> status.BuildStatus:
        if out == "s3://slow/out":
            answered.wait(30)
            raise OSError("it gave up")
        return status.run_status(out)

    monkeypatch.setattr(watching, "run_status", slow)
    with watching.watching(["s3://slow/out", str(tmp_path)]) as (stuck, other):
        wait_for(lambda: other.now.state == "encoding")
        assert stuck.now.state == "reading"
        answered.set()
        wait_for(lambda: stuck.now.note == "cannot read: OSError: it gave up")


def test_a_build_in_a_bucket_is_watched_like_one_in_a_folder(bucket: Any) -> None:
    begin(out := f"s3://{bucket.name}/out", bytes_done=300, disk_bytes=30, finished_bytes=300)
    run = Run(out)
    run.read()
    assert (run.now.headline, run.now.note) == ("encoding, 30%", "")
    assert ("disk", "30 B written, about 100 B at the end") in run_facts(run.now)


def test_work_found_at_the_start_counts_and_a_killed_attempt_does_not(tmp_path: Path) -> None:
    begin(tmp_path, bytes_done=450, finished_bytes=400, disk_bytes=40)
    resumed = AgentState(
        agent="host-00000002", counter=1, workers=1, seconds=10, clock=time.time() + 20,
        tallies=Tallies(
            alone=True, documents=10, tokens=1000, resumed_bytes=400,
            bytes_done=500, bytes_total=1000, finished_bytes=500, disk_bytes=50,
            rejected={"a": 1, "b": 2}, stages={"read": 1.0, "encode": 3.0},
        ),
    )  # fmt: skip
    FolderStore(tmp_path).replace(state_name(resumed.agent), canonical_json(resumed))
    found = status.run_status(tmp_path)
    assert (found.documents, found.tokens, found.bytes_done) == (10, 1000, 500)
    assert (found.disk_bytes, found.disk_bytes_at_end) == (50, 100)
    assert list(found.rejected.items()) == [("b", 2), ("a", 1)]
    assert found.eta_seconds == 50, "100 bytes in 10 s since it began"
    assert (found.stage, found.attempt) == ("encoding", "host-00000002")
    assert [(agent.agent, agent.state) for agent in found.agents] == [
        ("host-00000001", "left"),
        ("host-00000002", "at work"),
    ]


def test_a_build_that_replaces_another_is_shown_instead_of_it(
    dataset: Dataset, tmp_path: Path
) -> None:
    shutil.copytree(dataset.folder, tmp_path / "out")
    assert status.run_status(tmp_path / "out").stage == "complete"
    begin(tmp_path / ".out.unfinished/new", bytes_done=300)
    found = status.run_status(tmp_path / "out")
    assert (found.out, found.stage, found.bytes_done) == (str(tmp_path / "out"), "encoding", 300)


def test_an_export_is_followed_to_its_end(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = pack(dataset, PackOptions(sequence_length=512)).plan
    monkeypatch.setattr(export_folder, "REPORT_SECONDS", 0.0)
    run, seen = Run(str(tmp_path / "rows")), []

    def look(*_: Any) -> None:
        run.read()
        seen.append((run.now.state, run.now.share))

    look()
    export(dataset, plan, tmp_path / "rows", advance=look)
    look()
    assert seen[0] == ("waiting", 0.0)
    assert {state for state, _ in seen[1:-1]} == {"assembling", "writing"}
    assert seen[-1] == ("complete", 1.0)
    assert run.now.status.documents == len(plan)  # type: ignore[union-attr]


def test_lines_of_metrics_that_mean_nothing_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "loader.prom"
    path.write_bytes(
        b"# TYPE tokenmill_wait_seconds counter\n"
        b'tokenmill_wait_seconds_total{rank="0",source="a\\"b"} 1.5e3 1700000000\n'
        b"tokenmill_fill_ratio 0.98\n"
        b"node_load1 3\ntokenmill_bad x\ntokenmill_\n\xff\xfe\ntokenmill_open{ 3\n# EOF\n"
    )
    assert read_gauges(path) == [
        Gauge("wait seconds total", 'rank 0, source a\\"b', 1500.0),
        Gauge("fill ratio", "", 0.98),
    ]


def test_the_state_is_printed_once(tmp_path: Path, capsys: Printed) -> None:
    begin(tmp_path / "out", bytes_done=300, rejected={"invalid-json": 3})
    (tmp_path / "m.prom").write_text("tokenmill_fill_ratio 0.98\n")
    names = [str(tmp_path / name) for name in ("out", "m.prom", "none")]
    assert main(["watch", *names, "--once"]) == 0
    shown = capsys.readouterr().out.replace(str(tmp_path), "DIR")
    assert shown == (
        "      run  DIR/out: encoding, 30%\n"
        "     done  300 B of 1 kB, 30.0%\n"
        "time left  3:53, likely 1:57 or much longer\n"
        "    speed  3 B and 10 tokens a second\n"
        "documents  10\n"
        "   tokens  1,000\n"
        "    units  none done yet; 0 items claimed\n"
        " rejected  3 records: invalid-json 3\n"
        "\n"
        "       run  DIR/m.prom: measured\n"
        "fill ratio  0.98\n"
        "\n"
        "run  DIR/none: waiting, because nothing has begun there yet\n"
    )


def test_in_a_pipe_lines_are_printed_until_all_is_complete(dataset: Dataset) -> None:
    result = tokenmill("watch", dataset.folder, "--terminal", small=False)
    assert (result.returncode, result.stderr) == (0, "")
    last = result.stdout.splitlines()[-1]
    assert last.startswith(f"{dataset.folder}: complete; dataset ")


INTERRUPTED = """
import os, signal, sys, threading
from tokenmill import build
from tokenmill.cli import main
threading.Timer(float(sys.argv[1]), os.kill, (os.getpid(), signal.SIGINT)).start()
sys.exit(main(sys.argv[2:]))
"""


def test_a_terminal_is_filled_until_ctrl_c(tmp_path: Path) -> None:
    begin(tmp_path / "out", bytes_done=300)
    text = on_terminal(60, "-c", INTERRUPTED, "2.5", "watch", str(tmp_path / "out"), "--terminal")
    screen = text.rpartition(": encoding, 30%")[2]
    assert "time left  3:53, likely 1:57 or much longer" in screen
    assert all(len(line) <= 60 for line in screen.splitlines())


def test_ctrl_c_ends_the_page_with_exit_code_0(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, "2", "watch", tmp_path / "none"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert re.match(r"page  http://127\.0\.0\.1:\d+/[\w-]{20,}/\n", result.stdout)


def test_a_port_in_use_is_refused(tmp_path: Path, capsys: Printed) -> None:
    with served(tmp_path) as server:
        port = str(server.server_port)
        assert main(["watch", str(tmp_path), "--port", port]) == 2
    assert f"cannot listen on port {port}" in capsys.readouterr().err

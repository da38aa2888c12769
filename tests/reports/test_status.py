"""The status of a build: from hints in a folder that anybody may have written."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import msgspec
import pytest

from conftest import Printed
from tokenmill.cli import main
from tokenmill.core.errors import EngineError, UserError, VerificationError
from tokenmill.reports.status import build_status
from tokenmill.run.agreement import JobRecord
from tokenmill.run.journal.agents import AgentState, Tallies, state_name
from tokenmill.run.journal.claims import claim_name, note_failure
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.objects.folder import FolderStore

FIRST, SECOND, THIRD, LEFT, SILENT = (f"0000{index}-0000000{index}" for index in range(5))


def begin(store: FolderStore) -> None:
    job = sealed(JobRecord(job="a", identity=msgspec.Raw(b"{}")))
    store.create("work/job.json", canonical_json(job))


def say(store: FolderStore, agent: str, mb_done: int, *, left: str = "", age: float = 5) -> None:
    """A heart-beat of an agent that has worked for 100 s."""
    tallies = Tallies(
        documents=10, tokens=1000, bytes_done=mb_done * 10**6, bytes_total=10**9, items=["a"]
    )
    state = AgentState(
        agent=agent, counter=5, host="node", workers=8, seconds=100.0,
        clock=time.time() - age, tallies=tallies, left=left,
    )  # fmt: skip
    store.replace(state_name(agent), canonical_json(state))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A build by five agents: two at full speed, a slow, a silent, and one that left."""
    store = FolderStore(tmp_path / "out")
    begin(store)
    say(store, FIRST, 100)
    say(store, SECOND, 100)
    say(store, THIRD, 30)
    say(store, LEFT, 50, left="done")
    say(store, SILENT, 20, age=300)
    store.create(claim_name("a", 0), b"{}")
    store.create(claim_name("a", 1), b"{}")
    store.create("work/receipts/00000000-000000.json", b"{}")
    for agent in (FIRST, SECOND):
        note_failure(store, "b", agent, EngineError("it crashed twice"))
    store.create("work/damaged/00000007.json", b'{"why": "CRC"}')
    return tmp_path / "out"


def test_an_agent_that_reports_from_the_future_is_not_read(out: Path) -> None:
    before = build_status(out)
    say(FolderStore(out), "00009-00000009", 10**9, age=-1e9)
    after = build_status(out)
    assert (after.bytes_done, len(after.agents)) == (before.bytes_done, 5)


def test_agents_progress_and_failures_are_shown(out: Path) -> None:
    status = build_status(out)
    assert {agent.agent: agent.state for agent in status.agents} == {
        FIRST: "at work",
        SECOND: "at work",
        THIRD: "at work",
        LEFT: "left",
        SILENT: "silent",
    }
    assert [agent.agent for agent in status.agents if agent.is_straggler] == [THIRD]
    assert (status.bytes_done, status.bytes_total) == (300_000_000, 10**9)
    assert status.eta_seconds == pytest.approx(700 / 2.3)
    assert (status.units_done, status.items_claimed, status.items_taken_over) == (1, 1, 1)
    assert [(f.item, f.agents, f.error) for f in status.failures] == [
        ("b", [FIRST, SECOND], "it crashed twice")
    ]
    assert status.damaged == {7: "CRC"}


def test_the_command_prints_lines_or_json(out: Path, capsys: Printed) -> None:
    assert main(["status", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "300 MB of 1.00 GB, 30.0%" in shown
    assert "b on 2 agents: it crashed twice" in shown
    assert "    units  1 done; 1 item claimed, 1 taken over\n" in shown
    assert "silent for 5:00" in shown
    assert main(["status", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items_taken_over"] == 1


def test_an_agent_without_finished_input_has_no_speed_yet(tmp_path: Path, capsys: Printed) -> None:
    store = FolderStore(tmp_path / "out")
    begin(store)
    say(store, FIRST, 0)
    assert main(["status", str(tmp_path / "out")]) == 0
    agent = capsys.readouterr().out.splitlines()[-1]
    assert re.split(r" {2,}", agent)[4:5] == ["-"]


def test_a_build_that_has_just_started_says_what_is_known(tmp_path: Path, capsys: Printed) -> None:
    store = FolderStore(tmp_path / "out")
    begin(store)
    store.create(claim_name("a", 0), b"{}")
    assert main(["status", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out == (
        f"    build  {tmp_path / 'out'}: under way, starting\n"
        "documents  none reported yet\n"
        "    units  none done yet; 1 item claimed\n"
    )


def test_what_cannot_be_read_is_passed_over(out: Path) -> None:
    hostile = {
        "agents/00009-00000009.json": b"\xff\xfe",
        "agents/00008-00000008.json": b"[" * 100_000,
        "agents/00007-00000007.json": b" " * (2 << 20),
        "agents/00006-00000006.json": b'{"agent": "x\\u001b[2J", "counter": 1}',
        "agents/no agent.json": b"{}",
        "claims/\x1b[2J.99999999999999999999": b"{}",
        "damaged/00000008.json": b"{",
        f"failed/c.{FIRST}.json": msgspec.json.encode({"kind": "SystemExit"}),
    }
    for name, data in hostile.items():
        (out / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (out / "work" / name).write_bytes(data)
    (out / "work/agents/folder-00000001.json").mkdir()
    status = build_status(out)
    assert len(status.agents) == 5
    assert [failure.item for failure in status.failures] == ["b", "c"]
    assert status.damaged == {7: "CRC", 8: "its note cannot be read"}
    assert main(["status", str(out)]) == 0


def test_without_a_build_there_is_no_status(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name in ("", "file"):
        with pytest.raises(UserError, match="found no build"):
            build_status(tmp_path / name)


@pytest.mark.parametrize("garbage", [b"", b"{", b"{}", b"\xff" * 100])
def test_garbage_is_not_a_build_under_way(tmp_path: Path, garbage: bytes) -> None:
    FolderStore(tmp_path).create("work/job.json", garbage)
    with pytest.raises(VerificationError) as caught:
        build_status(tmp_path)
    assert caught.value.where == str(tmp_path / "work/job.json")

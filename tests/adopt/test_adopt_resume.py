"""Adopting that is killed, refused or has no room, and the command line."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from adopt_kit import documents_of, write_pair
from corpora import contents, tokenmill_here, wait_for

import tokenmill
from load.loading_kit import write_tokenizer
from tokenmill.core.errors import InputChangedError, StorageError, VerificationError
from tokenmill.run.adopt import adopting

DOCUMENTS = [[7, 8, 9, 0], [1, 0], [2, 3, 0]]
NUM_FILES = 12


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, every other one of ids that must be converted."""
    folder = tmp_path_factory.mktemp("inputs")
    for number in range(NUM_FILES):
        dtype = "int32" if number % 2 else "uint16"
        write_pair(folder / f"{number:02d}", DOCUMENTS * (number + 1), dtype)
    return folder


@pytest.fixture(scope="module")
def clean(inputs: Path, tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("clean") / "out"
    tokenmill.adopt(inputs, tokenizer, out, eos="<eos>")
    return out


def line_of(inputs: Path, tokenizer: Path, out: Path, *more: str) -> list[str]:
    options = ["--tokenizer", str(tokenizer), "--out", str(out), "--eos", "<eos>", *more]
    return ["adopt", str(inputs), *options]


def test_kills_at_random_moments_change_no_byte(
    inputs: Path, tokenizer: Path, clean: Path, tmp_path: Path
) -> None:
    """Each attempt is killed a moment after it has begun, later and later until one ends."""
    moments, kills = random.Random(2), 0
    for trial in itertools.count():
        out = tmp_path / f"out-{trial}"
        command = [sys.executable, "-m", "tokenmill", *line_of(inputs, tokenizer, out)]
        for attempt in itertools.count():
            attempts = out / "work" / "attempts"
            shutil.rmtree(attempts, ignore_errors=True)  # the next attempt creates it again
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            wait_for(lambda: attempts.exists() or process.poll() is not None)  # noqa: B023
            try:
                process.communicate(timeout=moments.uniform(0.0, 0.03 * (attempt + 1)))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
                assert not (out / "manifest.json").exists() or contents(out) == contents(clean)
            else:
                assert process.returncode == 0
                break
        assert contents(out) == contents(clean)
        assert not (out / "work").exists()
        if kills >= 6:
            break


def test_files_with_a_receipt_are_not_read_again(
    inputs: Path, tokenizer: Path, clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    write_shard = adopting.write_shard

    def stop_at_the_sixth(file, *arguments, **options):
        if len(made) == 5:
            raise KeyboardInterrupt
        made.append(file.source.name)
        return write_shard(file, *arguments, **options)

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(adopting, "write_shard", stop_at_the_sixth)
        with pytest.raises(KeyboardInterrupt):
            tokenmill.adopt(inputs, tokenizer, out, eos="<eos>")
        made.clear()
        with pytest.raises(InputChangedError, match="was 'auto', is 'eos'"):
            tokenmill.adopt(inputs, tokenizer, out, eos="<eos>", boundaries="eos")
    lost = next((out / "tokens").glob("00000002-*.bin"))
    lost.unlink()

    def noted(file, *arguments, **options):
        made.append(file.source.name)
        return write_shard(file, *arguments, **options)

    monkeypatch.setattr(adopting, "write_shard", noted)
    tokenmill.adopt(inputs, tokenizer, out, eos="<eos>")
    assert made == ["02.bin", *(f"{number:02d}.bin" for number in range(5, NUM_FILES))]
    assert contents(out) == contents(clean)


def test_an_old_dataset_stays_until_the_new_one_is_complete(
    inputs: Path, tokenizer: Path, clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    write_pair(tmp_path / "text", DOCUMENTS)
    tokenmill.adopt(tmp_path / "text", tokenizer, out, eos="<eos>")
    before = contents(out)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(adopting, "publish", stop)
        with pytest.raises(KeyboardInterrupt):
            tokenmill.adopt(inputs, tokenizer, out, eos="<eos>", overwrite=True)
    assert contents(out) == before
    tokenmill.adopt(inputs, tokenizer, out, eos="<eos>", overwrite=True)
    assert contents(out) == contents(clean)
    assert [path.name for path in tmp_path.glob(".out*")] == []


def test_room_is_checked_only_for_what_cannot_be_shared(
    inputs: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(StorageError, match="not enough disk space"):
        tokenmill.adopt(inputs, tokenizer, tmp_path / "out", eos="<eos>")
    tokenmill.adopt(inputs / "00", tokenizer, tmp_path / "shared", eos="<eos>")


def test_files_are_copied_where_they_cannot_be_shared(
    inputs: Path, tokenizer: Path, clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tokenmill.store import shard

    monkeypatch.setattr(shard, "shared", lambda file, name: False)
    tokenmill.adopt(inputs, tokenizer, tmp_path / "out", eos="<eos>")
    assert contents(tmp_path / "out") == contents(clean)


def test_verify_notices_that_a_shared_file_was_written_to(tokenizer: Path, tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "text", DOCUMENTS)
    dataset = tokenmill.adopt(pair, tokenizer, tmp_path / "out", eos="<eos>")
    with open(pair, "r+b") as file:
        file.write(b"\x05\x00")
    with pytest.raises(VerificationError, match="a file is damaged"):
        tokenmill.verify(dataset.folder)


def test_the_command_says_what_it_found(tokenizer: Path, tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "text", [[7, 8, 0], [9], [], [1, 0, 0]])
    line = line_of(pair, tokenizer, tmp_path / "out", "--append-eos")
    done = tokenmill_here(*line)
    assert done.returncode == 0, done.stderr
    dataset_id = tokenmill.open(tmp_path / "out").manifest.dataset_id
    assert [line.strip() for line in done.stdout.splitlines()[:-3]] == [
        "documents  3 of 1 file",
        f"tokens  8 in {tmp_path / 'out'} (id {dataset_id})",
        "files  0 share their bytes, 1 written anew",
        "boundaries  begin with nothing, end with 0: --eos",
        "found  1 document: no tokens, left out",
        "found  1 document: got an EOS",
        "found  1 document: several EOS at the end, perhaps padding",
        "found  1 special token inside documents",
        "begins  '7 8 <eos>'",
    ]
    again = tokenmill_here(*line)
    assert again.stdout.splitlines()[0] == "nothing to do: the dataset is complete"
    assert documents_of(tokenmill.open(tmp_path / "out")) == [[7, 8, 0], [9, 0], [1, 0, 0]]


def test_events_tell_the_progress_in_bytes(inputs: Path, tokenizer: Path, tmp_path: Path) -> None:
    done = tokenmill_here(*line_of(inputs, tokenizer, tmp_path / "out", "--json"))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    total = sum(path.stat().st_size for path in inputs.glob("*.bin"))
    assert [event["event"] for event in events] == ["adopting", "finished"]
    assert events[0]["total"] == total
    assert events[1]["found"]["shared"] == NUM_FILES // 2
    assert events[1]["found"]["documents"] == 3 * sum(range(1, NUM_FILES + 1))


def test_status_inspect_and_report_show_an_adopted_dataset(clean: Path, tmp_path: Path) -> None:
    for command in (
        ["status", clean],
        ["inspect", clean],
        ["report", clean, "--out", tmp_path / "a.html"],
    ):
        done = tokenmill_here(*command)
        assert done.returncode == 0, done.stderr
    shown = tokenmill_here("inspect", clean).stdout
    assert "encoded by  another tool" in shown
    assert "adopted: all ids are in the vocabulary; they were compared with no text" in shown

"""`tokenmill bench`: every arrangement in a process of its own, and ids that are compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import TEXTS, write_jsonl
from encode.tokenizer_kit import sentencepiece_model
from tokenmill.cli import main
from tokenmill.core.errors import UserError
from tokenmill.encode.engine_ranking import rank_engines
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.report.tokenizers.bench import runner
from tokenmill.report.tokenizers.bench.arrangements import Arrangement, arrangements_for
from tokenmill.report.tokenizers.bench.documents import take_documents
from tokenmill.report.tokenizers.bench.encoders import ids_of_documents, open_encoder


def shape(arrangement: Arrangement) -> tuple[str, int, int, bool, int]:
    return tuple(getattr(arrangement, name) for name in arrangement.__struct_fields__)


def test_a_file_is_measured_in_every_arrangement(tokenizer_path: Path) -> None:
    file = load_tokenizer_file(tokenizer_path)
    planned = [shape(found) for found in arrangements_for(file, 1000, 4)]
    assert planned[:11] == [
        ("tokenizers", 1, 1, False, 0),
        ("tokenizers", 32, 4, False, 0),
        ("tokenizers", 64, 4, False, 0),
        ("tokenizers", 100, 4, False, 0),
        ("tokenizers", 256, 4, False, 0),
        ("tokenizers", 1000, 4, False, 0),
        ("tokenizers", 250, 1, False, 0),
        ("tokenizers", 62, 4, True, 0),
        ("tokenizers", 250, 1, False, 1),
        ("tokenizers", 125, 1, False, 2),
        ("tokenizers", 62, 1, False, 4),
    ]
    engines = [name for name in rank_engines(file, False).names if name != "reference"]
    assert planned[11:] == [
        row for name in engines for row in [(name, 250, 1, False, 0), (name, 62, 1, False, 4)]
    ]


def test_a_python_object_has_single_calls_threads_and_processes() -> None:
    file = TokenizerFile("python", b"{}")
    assert [shape(found) for found in arrangements_for(file, 8, 2)] == [
        ("slow", 1, 1, False, 0),
        ("slow", 1, 2, True, 0),
        ("slow", 2, 1, False, 1),
        ("slow", 1, 1, False, 2),
    ]


def test_one_core_has_no_threads_to_compare(tokenizer_path: Path) -> None:
    file = load_tokenizer_file(tokenizer_path)
    planned = list(arrangements_for(file, 10, 1))
    assert not any(found.python_threads or found.threads > 1 for found in planned)
    assert {found.processes for found in planned} == {0, 1}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> list[Arrangement]:
    """What is measured, for a test to fill."""
    planned: list[Arrangement] = []

    def arrangements(file: object, num_documents: int, num_cores: int) -> Iterator[Arrangement]:
        return iter(planned)

    monkeypatch.setattr(runner, "arrangements_for", arrangements)
    return planned


def bench(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    """Exit code and report."""
    code = main(["bench", "tokenizers", "--json", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else captured.err


def test_arrangements_are_measured_and_give_the_same_ids(
    few: list[Arrangement],
    tokenizer_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    few += [
        Arrangement(encoder="tokenizers", batch_size=1),
        Arrangement(encoder="tokenizers", batch_size=2, threads=2),
        Arrangement(encoder="tokenizers", batch_size=2, threads=2, python_threads=True),
        Arrangement(encoder="tokenizers", batch_size=2, processes=2),
        Arrangement(encoder="sentencepiece", batch_size=2),
    ]
    path = write_jsonl(tmp_path / "a.jsonl", ["", *TEXTS])
    code, report = bench(capsys, "--tokenizer", tokenizer_path, "--input", path)
    assert code == 0
    assert (report["num_documents"], report["num_bytes"]) == (
        5,
        sum(len(t.encode()) for t in TEXTS),
    )
    assert report["notes"] == [
        "5 documents, where 1,000 were asked for",
        "left out: batches of 32, 64, 100, 256, 1000, 2000, 5000, 6000, more than the documents",
    ]
    slow, *rows, failed = report["rows"]
    assert slow["remark"] == "none: the tokenizer is not a Python object"
    assert "failed with exit code 1: " in failed["remark"]
    for row in rows:
        assert (row["remark"], row["num_different"], row["num_passes"]) == ("", 0, 3)
        assert row["seconds"] > 0
        assert row["startup_seconds"] > 0
        assert row["peak_bytes"] > 20_000_000
    assert rows[0]["speed_up"] == 1
    assert rows[3]["peak_bytes"] > rows[0]["peak_bytes"]  # three processes


def test_a_difference_is_shown_and_ends_with_code_7(
    few: list[Arrangement],
    tokenizer_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few += [Arrangement(encoder="tokenizers", batch_size=size) for size in (1, 2, 3)]
    found = iter([b"\0" * 16, b"\0" * 8 + b"\1" * 8, b"\0" * 16])

    def measured(*_: object) -> runner.Measurement:
        return runner.Measurement(
            first_seconds=2.0,
            seconds=[1.0, 4.0, 2.0],
            num_tokens=10_000_000,
            digests=next(found),
            startup_seconds=1.0,
            peak_bytes=5,
        )

    monkeypatch.setattr(runner, "_measured", measured)
    path = write_jsonl(tmp_path / "a.jsonl", ["one", "two"])
    arguments = ["--tokenizer", str(tokenizer_path), "--input", str(path), "--num-docs", "2"]
    assert main(["bench", "tokenizers", *arguments]) == 7
    shown = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in shown if line.startswith("tokenizers")]
    assert rows == [
        "tokenizers single 1 0 2.0000 2.0000 1 5.00 M 1.00 x 5 B 1.00 equal".split(),
        "tokenizers 2 1 0 2.0000 2.0000 1 5.00 M 1.00 x 5 B 1.00 1 DIFFER".split(),
        "tokenizers 3 1 0 2.0000 2.0000 1 5.00 M 1.00 x 5 B 1.00 equal".split(),
    ]


def test_encoders_agree(tokenizer_path: Path) -> None:
    file = load_tokenizer_file(tokenizer_path)
    names = ["tokenizers", *rank_engines(file, False).names]
    for texts in (TEXTS, [TEXTS[0], "<|endoftext|>", TEXTS[1]]):
        found = [
            [ids.tolist() for ids in ids_of_documents(encode(texts))]
            for name in names
            for size in (1, 2)
            if (encode := open_encoder(file, Arrangement(encoder=name, batch_size=size)))
        ]
        assert all(ids == found[0] for ids in found)


@pytest.mark.parametrize("kind", ["sentencepiece", "tiktoken"])
def test_other_kinds_have_single_calls_and_batches(kind: str) -> None:
    pytest.importorskip(kind)
    if kind == "sentencepiece":
        file = TokenizerFile("sentencepiece", sentencepiece_model())
    else:
        import base64

        lines = [b"%b %d" % (base64.b64encode(bytes([i])), i) for i in range(256)]
        file = TokenizerFile("tiktoken", b"\n".join(lines), "cl100k_base")
    planned = [Arrangement(encoder=kind, batch_size=size) for size in (1, 2)]
    single, batch = (ids_of_documents(open_encoder(file, found)(TEXTS)) for found in planned)
    assert [ids.tolist() for ids in single] == [ids.tolist() for ids in batch]
    assert [len(ids) > 0 for ids in single] == [True] * len(TEXTS)


def test_a_python_object_is_measured_by_its_name(
    few: list[Arrangement],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "letters_for_bench.py").write_text(
        "class Letters:\n    def encode(self, text):\n        return list(text.encode())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    few += [
        Arrangement(encoder="slow", batch_size=1),
        Arrangement(encoder="slow", batch_size=1, processes=1),
    ]
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    name = "python:letters_for_bench:Letters"
    code, report = bench(capsys, "--tokenizer", name, "--input", path, "--num-docs", 5)
    fast, *rows = report["rows"]
    assert (code, fast["remark"][:5]) == (0, "none:")
    assert [(row["remark"], row["num_different"]) for row in rows] == [("", 0)] * 2
    num_bytes = sum(len(text.encode()) for text in TEXTS)
    assert rows[0]["tokens_per_second"] == pytest.approx(num_bytes / rows[0]["seconds"])


def test_no_module_of_the_current_folder_is_imported(
    few: list[Arrangement],
    tokenizer_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", TEXTS)
    (tmp_path / "psutil.py").write_text("raise SystemExit(0)")
    monkeypatch.chdir(tmp_path)
    few += [
        Arrangement(encoder="tokenizers", batch_size=1),
        Arrangement(encoder="tokenizers", batch_size=1, processes=1),
    ]
    _, report = bench(capsys, "--tokenizer", tokenizer_path, "--input", path)
    assert [row["remark"] for row in report["rows"][1:]] == ["", ""]


def test_a_child_that_leaves_no_result_has_failed(
    few: list[Arrangement],
    tokenizer_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few += [Arrangement(encoder="tokenizers", batch_size=1)]
    monkeypatch.setattr("sys.executable", "true")
    _, report = bench(capsys, "--tokenizer", tokenizer_path, "--num-docs", 1)
    remark = report["rows"][1]["remark"]
    assert remark == "failed: it ended without a result: it said nothing"


def test_without_inputs_there_is_text_on_every_machine() -> None:
    found = take_documents(50, (), "text")
    assert len(found.texts) == 50
    assert max(map(len, found.texts)) == 2000
    assert found.num_bytes == sum(len(text.encode()) for text in found.texts)
    assert found.notes == []
    assert take_documents(50, (), "text") == found


def test_what_is_left_out_of_the_inputs_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["one", "two", "three"])
    path.write_text("no record\n" + path.read_text())
    found = take_documents(3, [str(path)], "text")
    assert (found.texts, found.notes) == (
        ["one", "two", "three"],
        ["1 records were rejected on the way"],
    )
    monkeypatch.setattr("tokenmill.report.tokenizers.bench.documents.MAX_BYTES", 7)
    limited = take_documents(3, [str(path)], "text")
    assert limited.texts == ["one", "two"]
    assert "2 documents, where 3 were asked for" in limited.notes
    with pytest.raises(UserError, match="no document"):
        take_documents(3, [str(write_jsonl(tmp_path / "b.jsonl", [""]))], "text")


def test_mistakes_end_with_code_2(tokenizer_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["--tokenizer", tokenizer_path, "--num-docs", 0],
        ["--tokenizer", "nowhere.json"],
        ["--tokenizer", tokenizer_path, "--input", "nowhere.jsonl"],
    ):
        assert bench(capsys, *arguments)[0] == 2

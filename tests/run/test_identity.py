"""What a build agrees with when it is repeated: options, inputs and the libraries it used."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import random_texts, set_versions

import tokenmill
from tokenmill.core.errors import (
    DataError,
    InputChangedError,
    OutputConflictError,
    VerificationError,
)
from tokenmill.read.sources import find_sources
from tokenmill.run import task
from tokenmill.run.agreement import identity_differences
from tokenmill.run.job import InputIdentity, deciding_libraries, shown, versions
from tokenmill.store.policies import EncodePolicies, Policies, ReadPolicies

Build = Callable[..., tokenmill.BuildReport]


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    """A plain file and a compressed one; each holds a bad record."""
    folder = tmp_path / "data"
    folder.mkdir()
    plain, packed = folder / "a.jsonl", folder / "b.jsonl.gz"
    plain.write_bytes(_lines(seed=1))
    packed.write_bytes(gzip.compress(_lines(seed=2), mtime=0))
    return [plain, packed]


def _lines(seed: int) -> bytes:
    texts = random_texts(40, seed=seed)
    return b"{}\n" + b"".join(json.dumps({"text": text}).encode() + b"\n" for text in texts)


@pytest.fixture
def build(inputs: list[Path], tokenizer_path: Path, tmp_path: Path) -> Build:
    """Builds `inputs`; with max_bad=0 it ends before it publishes, all units finished."""

    def run(**options: Any) -> tokenmill.BuildReport:
        options = {"workers": 1, "max_bad": 0.5, **options}
        return tokenmill.build(inputs, tokenizer_path, tmp_path / "out", **options)

    return run


def leave_unfinished(build: Build) -> None:
    with pytest.raises(DataError, match="records are bad"):
        build(max_bad=0.0)


def touch(path: Path) -> None:
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))


def change_one_byte(path: Path) -> None:
    """Another content of the same size."""
    data = path.read_bytes()
    path.write_bytes(data.replace(b"the", b"teh", 1))


def test_a_finished_dataset_is_complete_whatever_is_installed(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = build().run.engine
    now = dict.fromkeys(versions(), "99.9")
    monkeypatch.setattr(task, "versions", lambda: now)
    report = build()
    assert report.snapshot is None
    names = sorted({"msgspec", "pyarrow", "tokenizers", "tokenmill"} | {engine} & set(now))
    assert report.remarks == tuple(
        f"built with {name} {versions()[name]}; 99.9 is installed" for name in names
    )


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff"])
def test_an_unfinished_build_whose_state_is_damaged_is_refused(
    build: Build, tmp_path: Path, data: bytes
) -> None:
    leave_unfinished(build)
    state = tmp_path / "out" / "work" / "job.json"
    state.write_bytes(data)
    with pytest.raises(VerificationError, match="the file is damaged") as caught:
        build()
    assert caught.value.where == str(state)
    assert build(overwrite=True).reused is None


def test_an_unfinished_build_resumes_where_libraries_have_changed_that_it_does_not_use(
    build: Build, tmp_path: Path
) -> None:
    leave_unfinished(build)
    set_versions(tmp_path / "out", sentencepiece="0.0.1", tiktoken="0.0.1", numpy="0.0.1")
    assert build().reused is not None


def test_an_unfinished_build_is_refused_where_a_library_has_changed_that_decides_its_bytes(
    build: Build, tmp_path: Path
) -> None:
    leave_unfinished(build)
    set_versions(tmp_path / "out", pyarrow="0.0.1")
    with pytest.raises(InputChangedError) as caught:
        build()
    assert caught.value.why == f"pyarrow: was version 0.0.1, is {versions()['pyarrow']}"


@pytest.mark.parametrize(
    ("kind", "engine", "names"),
    [
        ("huggingface", "memo", {"tokenizers", "numba", "python"}),
        ("huggingface", "native", {"tokenizers", "numba", "python"}),
        ("huggingface", "fastokens", {"tokenizers", "fastokens"}),
        ("tiktoken", "fastokens", {"tiktoken", "fastokens"}),
        ("sentencepiece", "reference", {"sentencepiece"}),
        ("python", "reference", {"python"}),
    ],
)
def test_libraries_that_encode_decide_the_bytes(kind: str, engine: str, names: set[str]) -> None:
    assert deciding_libraries(kind, engine, []) == {"tokenmill", "pyarrow"} | names


def test_what_parses_json_decides_the_bytes_of_json_lines(inputs: list[Path]) -> None:
    sources = find_sources([str(path) for path in inputs])
    assert "msgspec" in deciding_libraries("huggingface", "reference", sources)


@pytest.mark.parametrize("number", [0, 1], ids=["plain", "compressed"])
def test_a_touched_input_stops_no_resume_and_leaves_a_finished_dataset_complete(
    build: Build, inputs: list[Path], number: int
) -> None:
    leave_unfinished(build)
    touch(inputs[number])
    report = build()
    assert report.reused is not None
    totals = report.dataset.manifest.totals
    assert (report.reused.units, report.reused.bytes) == (1, totals.record_bytes)
    assert report.reused.seconds > 0
    touch(inputs[number])
    compared: list[str] = []
    events = tokenmill.BuildEvents(on_compare=lambda source: compared.append(source.name))
    assert build(events=events).snapshot is None
    assert compared == [inputs[number].name]


def test_an_input_with_another_content_of_the_same_size_is_named(
    build: Build, inputs: list[Path]
) -> None:
    whole = inputs[0].read_bytes()
    leave_unfinished(build)
    change_one_byte(inputs[0])
    with pytest.raises(InputChangedError) as resumed:
        build()
    inputs[0].write_bytes(whole)
    build()
    change_one_byte(inputs[0])
    with pytest.raises(OutputConflictError, match="holds another dataset") as finished:
        build()
    for caught in (resumed.value, finished.value):
        assert caught.why.startswith("a.jsonl: its content changed; it has the same size")


Rows = list[tuple[str | None, str]]
ROWS: Rows = [("the cat", "a"), ("and dog", "b"), ("", "c"), (None, "d")]
OTHER_ROWS: dict[str, Rows] = {
    "another value is kept": [("the cat", "a"), ("and dog", "x"), ("", "c"), (None, "d")],
    "a text ends earlier": [("the ca", "a"), ("tand dog", "b"), ("", "c"), (None, "d")],
    "texts change rows": [("the cat", "a"), ("", "b"), ("and dog", "c"), (None, "d")],
}


@pytest.fixture(params=["parquet", "arrow"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"rows.{request.param}"
    write_table(path, ROWS)
    return path


def write_table(path: Path, rows: Rows) -> None:
    """A table of the same size, whatever is in equally many rows."""
    size = path.stat().st_size if path.exists() else 0
    columns = {name: [row[number] for row in rows] for number, name in enumerate(("text", "lang"))}
    content = pa.table(columns, schema=pa.schema({"text": pa.string(), "lang": pa.string()}))
    if path.suffix == ".parquet":
        options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        pq.write_table(content, path, **options)
    else:
        with pa.ipc.new_file(path, content.schema) as file:
            file.write_table(content)
    assert size in (0, path.stat().st_size)
    touch(path)


def build_table(path: Path, tokenizer: Path, max_bad: float = 0.5) -> tokenmill.BuildReport:
    out = path.parent / "out"
    return tokenmill.build(path, tokenizer, out, keep=["lang"], workers=1, max_bad=max_bad)


def test_a_table_whose_texts_together_are_the_same_has_changed_if_its_rows_have(
    table: Path, tokenizer_path: Path
) -> None:
    build_table(table, tokenizer_path)
    for rows in OTHER_ROWS.values():
        write_table(table, rows)
        with pytest.raises(OutputConflictError) as caught:
            build_table(table, tokenizer_path)
        changed = f"{table.name}: its content changed; it has the same size"
        assert caught.value.why.startswith(changed)
    write_table(table, ROWS)
    assert build_table(table, tokenizer_path).snapshot is None, "it was only touched"


def test_finished_units_of_a_table_are_compared_row_by_row(
    table: Path, tokenizer_path: Path
) -> None:
    with pytest.raises(DataError, match="records are bad"):
        build_table(table, tokenizer_path, max_bad=0.0)
    write_table(table, OTHER_ROWS["another value is kept"])
    with pytest.raises(
        InputChangedError, match="its inputs, options or libraries have changed"
    ) as caught:
        build_table(table, tokenizer_path)
    assert caught.value.why.startswith(f"{table.name}: its content changed; it has the same size")
    write_table(table, ROWS)
    assert build_table(table, tokenizer_path).reused is not None


def test_a_file_that_was_left_out_as_damaged_is_not_compared(
    build: Build, inputs: list[Path]
) -> None:
    """It may have been restored: then it would be left out for no reason."""
    whole = inputs[1].read_bytes()
    inputs[1].write_bytes(whole[:-20] + bytes(20))
    build(on_bad_file="quarantine")
    inputs[1].write_bytes(whole)
    touch(inputs[1])
    with pytest.raises(OutputConflictError, match="holds another dataset") as caught:
        build(on_bad_file="quarantine")
    assert "cannot be compared, because it was left out as damaged" in caught.value.why


def test_a_limited_dataset_with_a_touched_input_is_not_compared(
    build: Build, inputs: list[Path]
) -> None:
    """Only a part of the input was read: nothing says that the rest is the same."""
    build(max_documents=5)
    touch(inputs[0])
    with pytest.raises(OutputConflictError) as caught:
        build(max_documents=5)
    assert "cannot be compared, because the build stopped at a limit" in caught.value.why


def policies(**read: Any) -> dict[str, Any]:
    encode = EncodePolicies(special_tokens="text")
    found: dict[str, Any] = msgspec.to_builtins(Policies(read=ReadPolicies(**read), encode=encode))
    return found


INPUTS = [
    InputIdentity(name="a.jsonl", bytes=10, mtime_ns=5),
    InputIdentity(name="b.jsonl", bytes=20, mtime_ns=5),
]
IDENTITY = {
    "inputs": INPUTS,
    "tokenizer": "abc",
    "eos_id": 0,
    "pad_id": None,
    "policies": policies(keep=["url"]),
    "versions": {},
}


def changed(**changes: Any) -> dict[str, Any]:
    return {**IDENTITY, **changes}


def lines(stored: Any, now: dict[str, Any]) -> list[str]:
    return identity_differences(
        msgspec.to_builtins(stored), now, lambda index: "its content changed"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"versions": {"numpy": "3"}}, []),
        ({"eos_id": 2}, ["eos_id: was 0, is 2"]),
        ({"pad_id": 0}, ["pad_id: was None, is 0"]),
        (
            {"policies": policies(text_field="body", keep=["url"])},
            ["policies.read.text_field: was 'text', is 'body'"],
        ),
        (
            {"policies": policies(keep=["date"], streaming=True)},
            [
                "policies.read.keep[0]: was 'url', is 'date'",
                "policies.read.streaming: was None, is True",
            ],
        ),
        ({"inputs": INPUTS[:1]}, ["b.jsonl: is no longer an input"]),
        (
            {"inputs": [*INPUTS, InputIdentity(name="c.jsonl", bytes=1, mtime_ns=5)]},
            ["c.jsonl: is a new input"],
        ),
        (
            {"inputs": INPUTS[::-1]},
            ["the order of the inputs: was ['a.jsonl', 'b.jsonl'], is ['b.jsonl', 'a.jsonl']"],
        ),
    ],
)
def test_every_difference_is_shown_at_its_place(
    changes: dict[str, Any], expected: list[str]
) -> None:
    assert lines(IDENTITY, changed(**changes)) == expected


def test_content_is_compared_only_where_nothing_else_differs() -> None:
    touched = [InputIdentity(name="a.jsonl", bytes=10, mtime_ns=6), INPUTS[1]]
    asked: list[int] = []

    def change_of(index: int) -> str:
        asked.append(index)
        return ""

    stored = msgspec.to_builtins(IDENTITY)
    assert identity_differences(stored, changed(inputs=touched), change_of) == []
    assert identity_differences(stored, changed(inputs=touched, eos_id=1), change_of) != []
    assert asked == [0]


def test_of_many_differences_the_first_twelve_are_shown() -> None:
    text = shown([f"key{number}" for number in range(20)])
    assert text.split() == [*(f"key{number}" for number in range(12)), "...", "and", "8", "more"]

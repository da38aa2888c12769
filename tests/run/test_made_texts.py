"""Texts that a template or a function of the user's makes of records."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import transforms
from corpora import documents

import tokenmill
from tokenmill.cli import main
from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.read.rendering import transform as known
from tokenmill.read.rendering.transform import Transform, give, source_digest

RECORDS = [{"title": f"Title {n}", "body": "One. Two." if n % 2 else ""} for n in range(6)]
NAME = "python:transforms:titled"
TEMPLATE = "{title}\n\n{body}"
TEXTS = [f"{each['title']}\n\n{each['body']}" for each in RECORDS]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in RECORDS))
    return path


def build(lines: Path, tokenizer: Path, out: Path, function: Any, **options: Any) -> Any:
    return tokenmill.build(lines, tokenizer, out, **{"workers": 1, "transform": function} | options)


def test_a_shell_writes_line_ends_as_backslash_n(
    lines: Path, tokenizer_path: Path, reference: Callable[[str], list[int]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    template = r"{title}\n\n{body}"
    arguments = [str(lines), "--tokenizer", str(tokenizer_path), "--out", str(out)]
    assert main(["build", *arguments, "--text-template", template, "--workers", "1"]) == 0
    dataset = tokenmill.open(out)
    assert dataset.policies.read.text_template == TEMPLATE
    eos = dataset.manifest.tokenizer.eos_id
    assert documents(out) == [[*reference(text), eos] for text in TEXTS]
    assert main(["verify", str(out), "--against-sources"]) == 0


def test_rows_and_lines_give_the_same_documents_and_both_resume(
    lines: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    table = tmp_path / "b.parquet"
    pq.write_table(pa.Table.from_pylist(RECORDS), table)
    options: dict[str, Any] = {"text_template": TEMPLATE, "workers": 1}
    first = tokenmill.build(lines, tokenizer_path, tmp_path / "lines", **options)
    second = tokenmill.build(table, tokenizer_path, tmp_path / "rows", **options)
    assert documents(tmp_path / "lines") == documents(tmp_path / "rows")
    assert (first.manifest.totals.records, second.manifest.totals.document_bytes) == (
        6,
        sum(map(len, TEXTS)),
    )
    tokenmill.verify(tmp_path / "rows", against_sources=True)
    table.touch()
    assert tokenmill.build(table, tokenizer_path, tmp_path / "rows", **options).snapshot is None
    with pytest.raises(OutputConflictError, match="other"):
        tokenmill.build(table, tokenizer_path, tmp_path / "rows", text_template="{body}")


def test_words_are_counted_of_the_same_texts(lines: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"split": "gpt2", "workers": 1}
    tokenmill.count_words(lines, tmp_path / "counts", text_template=TEMPLATE, **options)
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    tokenmill.count_words(plain, tmp_path / "expected", **options)
    counts, expected = (
        {path.name: path.read_bytes() for path in sorted((tmp_path / name).rglob("*.npy"))}
        for name in ("counts", "expected")
    )
    assert counts == expected
    assert counts


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"text_template": "{title"}, "expected '}'"),
        ({"text_template": "no field"}, "contains no field"),
        ({"text_template": "{title!r}"}, "only contain the name of a field"),
        ({"text_template": "{title}", "text_field": "body"}, "text_field: cannot be"),
        (
            {"text_template": "{title}", "no_loss": "spans"},
            "the text is built from the whole record",
        ),
    ],
)
def test_templates_that_cannot_be_meant(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError) as caught:
        tokenmill.recipe("a.jsonl", "gpt2", "out", **options)
    assert why in str(caught.value) + caught.value.why


def test_a_record_without_a_text_is_counted_as_empty(
    lines: Path, tokenizer_path: Path, reference: Callable[[str], list[int]], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    totals = build(lines, tokenizer_path, out, transforms.titled).manifest.totals
    assert (totals.records, totals.documents, totals.empty) == (6, 3, 3)
    assert totals.record_bytes == lines.stat().st_size
    dataset = tokenmill.open(out)
    eos = dataset.manifest.tokenizer.eos_id
    assert documents(out) == [[*reference(f"Title {n}: One. Two."), eos] for n in (1, 3, 5)]
    assert dataset.policies.read.transform == NAME
    digest = dataset.policies.read.transform_sha256
    assert digest == source_digest(transforms.titled, NAME)


def test_several_texts_of_a_record_are_documents_at_one_place(
    lines: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    report = build(lines, tokenizer_path, out, transforms.sentences, keep=["body"], workers=2)
    totals = report.manifest.totals
    assert (totals.records, totals.further, totals.documents, totals.empty) == (6, 3, 6, 3)
    table = pq.read_table(next((out / "documents").iterdir()))
    positions = table.column("position").to_pylist()
    assert positions[::2] == positions[1::2]
    assert table.column("column.body").to_pylist() == ["One. Two."] * 6, "as it was found"
    assert tokenmill.verify(out, against_sources=True).compared_documents == 6


def test_a_dict_may_say_what_carries_no_loss(
    lines: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    build(lines, tokenizer_path, out, transforms.masked, no_loss="without")
    table = pq.read_table(next((out / "documents").iterdir()))
    assert [spans[0]["start"] for spans in table.column("no_loss").to_pylist()] == [0] * 6
    tokenmill.verify(out, against_sources=True)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("function", "what", "why"),
    [
        (transforms.failing, "failed on a record", "KeyError: 'titel'"),
        (transforms.number, "did not return text", "of type int"),
    ],
)
def test_what_a_function_does_wrong_names_the_record(
    function: Any, what: str, why: str, workers: int, lines: Path, tokenizer_path: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    with pytest.raises(UserError, match=what) as caught:
        build(lines, tokenizer_path, tmp_path / "out", function, workers=workers)
    place = 0 if function is transforms.number else sum(
        len(json.dumps(each)) + 1 for each in RECORDS[:4]
    )  # fmt: skip
    assert caught.value.where == f"{lines}, position {place}"
    assert why in caught.value.why


def test_lambdas_and_closures_reach_the_workers(
    lines: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    end = "!"
    function = lambda record: record["title"] + end  # noqa: E731
    build(lines, tokenizer_path, tmp_path / "one", function, workers=1)
    build(lines, tokenizer_path, tmp_path / "two", function, workers=2)
    assert documents(tmp_path / "one") == documents(tmp_path / "two")
    end = "?"
    with pytest.raises(OutputConflictError, match="other"):
        build(lines, tokenizer_path, tmp_path / "one", function)


def test_a_function_without_a_source_is_refused() -> None:
    space: dict[str, Any] = {"__name__": "nowhere"}
    exec("def function(record): return record['title']", space)
    with pytest.raises(UserError, match="cannot find the source code of the transform"):
        give(space["function"])
    with pytest.raises(UserError, match="must be a function"):
        give(str.upper)
    handle = object()
    with pytest.raises(UserError, match="that a resumed build cannot compare"):
        give(lambda record: f"{handle}")


def test_a_function_that_cannot_be_sent_runs_in_one_process_alone(
    lines: Path, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dill", None)
    function = lambda record: record["title"]  # noqa: E731
    build(lines, tokenizer_path, tmp_path / "one", function, workers=1)
    with pytest.raises(UserError, match="cannot send the transform to worker processes") as caught:
        build(lines, tokenizer_path, tmp_path / "two", function, workers=2)
    assert "--workers 1" in caught.value.hint


def test_a_shell_names_the_function(
    lines: Path, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "out")
    arguments = [str(lines), "--tokenizer", str(tokenizer_path), "--out", out, "--workers", "1"]
    assert main(["build", *arguments, "--transform", NAME]) == 0
    monkeypatch.setattr(known, "_known", {})
    assert main(["verify", out, "--against-sources"]) == 2, "a dataset's names are never imported"
    assert main(["verify", out, "--against-sources", "--transform", NAME]) == 0
    assert main(["build", *arguments, "--transform", "python:transforms:title"]) == 2
    assert main(["build", *arguments, "--transform", "python:transforms:sentences"]) == 4


def test_another_source_under_the_same_name_is_another_build(
    lines: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"

    def run(body: str) -> subprocess.CompletedProcess[str]:
        script.write_text(
            "import sys, tokenmill\n"
            f"def clean(record):\n    return {body}\n"
            "if __name__ == '__main__':\n"
            "    report = tokenmill.build(*sys.argv[1:], transform=clean, workers=2)\n"
            "    print(report.manifest.totals.documents, report.snapshot is None)\n"
        )
        command = [sys.executable, script, lines, tokenizer_path, tmp_path / "out"]
        return subprocess.run(command, capture_output=True, text=True)

    assert run("record['title']").stdout == "6 False\n"
    assert run("record['title']").stdout == "6 True\n"
    assert "transform_sha256" in run("record['body']").stderr


def test_a_digest_tells_lambdas_and_values_apart() -> None:
    def giving(value: Any) -> Any:
        return lambda record: value

    # fmt: off
    one, other = (lambda record: record["a"]), (lambda record: record["b"])
    longer = {"transform": lambda record: record["a"]
                                          + record["b"]}
    other_longer = {"transform": lambda record: record["a"]
                                                + record["c"]}
    # fmt: on
    functions = [one, other, longer["transform"], other_longer["transform"]]
    functions += map(giving, [None, float("nan"), b"a", "YQ==", "\ud800", 1, 1.0, True])
    assert len({source_digest(function, "name") for function in functions}) == len(functions)
    assert source_digest(giving(1), "name") == source_digest(giving(1), "name")


def test_a_copy_in_a_worker_must_have_the_same_source() -> None:
    described = Transform.named(NAME)
    changed = Transform(name=NAME, sha256="0" * 64, source=described.source)
    with pytest.raises(UserError, match="the transform has changed"):
        changed.renderer()

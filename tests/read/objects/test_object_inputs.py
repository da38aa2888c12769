"""Builds whose inputs are objects: the same datasets as from the same files on a disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from backports import zstd

import tokenmill
from cloud_kit.chaos import chaos
from conftest import write_jsonl
from tokenmill.core.errors import DataError, InputChangedError, TokenmillError, UserError
from tokenmill.read import units
from tokenmill.read.per_input import PerInput
from tokenmill.read.places import buckets
from tokenmill.read.source import Access
from tokenmill.read.sources import list_sources
from tokenmill.run.task import refuse_output_among

PLACES = Access()


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 8 << 10)
    buckets._client.cache_clear()


def texts(start: int, count: int) -> list[str]:
    return [f"document {number} " * (number % 7) for number in range(start, start + count)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Large and small files of every kind that is cut in another way."""
    corpus = tmp_path / "corpus"
    (corpus / "sub").mkdir(parents=True)
    (corpus / ".hidden").mkdir()
    write_jsonl(corpus / "large.jsonl", texts(0, 900))
    for number in range(5):
        write_jsonl(corpus / f"small-{number}.jsonl", texts(number, 20))
    lines = write_jsonl(tmp_path / "lines.jsonl", texts(1000, 900)).read_bytes()
    (corpus / "large.jsonl.zst").write_bytes(zstd.compress(lines))
    (corpus / "sub" / "small.jsonl.zst").write_bytes(zstd.compress(lines[: lines.index(b"\n") + 1]))
    (corpus / "sub" / "empty.jsonl.zst").write_bytes(b"")
    rows = "".join(f'{number},"{text}"\n' for number, text in enumerate(texts(3000, 900)))
    (corpus / "large.csv").write_text(f"id,text\n{rows}")
    (corpus / "sub" / "array.json").write_text(json.dumps([{"text": text} for text in texts(0, 9)]))
    table = pa.table({"text": texts(2000, 900)})
    pq.write_table(table, corpus / "sub" / "groups.parquet", row_group_size=100)
    pq.write_table(table, corpus / "sub" / "one-group.parquet")
    datasets.Dataset(table).save_to_disk(corpus / "saved", num_shards=2)
    write_jsonl(corpus / ".hidden" / "no.jsonl", ["never read"])
    return corpus


def upload(bucket: Any, folder: Path, prefix: str = "data") -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            bucket.upload_file(str(path), f"{prefix}/{path.relative_to(folder).as_posix()}")


def build(inputs: list[str], tokenizer: Path, out: Path, **options: Any) -> Any:
    tokenmill.build(inputs, tokenizer=str(tokenizer), out=str(out), workers=1, **options)
    manifest = json.loads((out / "manifest.json").read_text())
    names = [source["name"] for source in manifest["sources"]]
    return manifest["dataset_id"], names


def test_a_dataset_is_the_same_from_a_bucket_and_from_a_disk(
    bucket: Any, corpus: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    upload(bucket, corpus)
    local = build([str(corpus)], tokenizer_path, tmp_path / "local")
    distant = build([f"s3://{bucket.name}/data"], tokenizer_path, tmp_path / "distant")
    assert distant == local
    assert len(local[1]) == 15


def test_text_is_the_same_from_a_bucket_and_from_a_disk(
    bucket: Any, tokenizer_path: Path, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.txt").write_text("\n<end>\n".join(texts(0, 900)))
    (corpus / "b.txt").write_text("\n<end>\n".join(texts(0, 9)))
    upload(bucket, corpus)
    local = build([str(corpus)], tokenizer_path, tmp_path / "local", separator="<end>")
    name = f"s3://{bucket.name}/data/"
    assert build([name], tokenizer_path, tmp_path / "distant", separator="<end>") == local


def names_of(name: str) -> list[str]:
    return [source.name for source in list_sources([name], PerInput(), PLACES)]


@pytest.mark.parametrize(
    "pattern",
    ["", "/*.jsonl", "/**/*.zst", "/*", "/sub/s*", "/small-[0-2].jsonl", "/**/", "/.hidden/*"],
)
def test_names_stand_for_the_same_files_in_the_same_order(
    bucket: Any, corpus: Path, pattern: str
) -> None:
    upload(bucket, corpus)
    if pattern == "/**/":  # a disk names the folders in it as well
        assert names_of(f"s3://{bucket.name}/data/") == names_of(str(corpus))
    else:
        assert names_of(f"s3://{bucket.name}/data{pattern}") == names_of(f"{corpus}{pattern}")


def test_folders_come_after_files_as_on_a_disk(bucket: Any, tmp_path: Path) -> None:
    for name in ["b.jsonl", "b/a.jsonl", "b-2.jsonl", "a/z.jsonl", "z.jsonl", "a/b/c.jsonl"]:
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_jsonl(path, ["text"])
    upload(bucket, tmp_path / "data")
    assert names_of(f"s3://{bucket.name}/data") == names_of(str(tmp_path / "data"))


def test_an_object_may_have_the_name_of_a_glob(bucket: Any) -> None:
    bucket.put_object(Key="a[1].jsonl", Body=b'{"text": "x"}\n')
    bucket.put_object(Key="a1.jsonl", Body=b'{"text": "x"}\n')
    assert names_of(f"s3://{bucket.name}/a[1].jsonl") == ["a[1].jsonl"]


def test_objects_that_stand_for_folders_are_no_inputs(bucket: Any) -> None:
    bucket.put_object(Key="data/", Body=b"")
    bucket.put_object(Key="data/sub/", Body=b"")
    bucket.put_object(Key="data/sub/a.jsonl", Body=b'{"text": "x"}\n')
    assert names_of(f"s3://{bucket.name}/data") == ["a.jsonl"]


def test_a_name_that_stands_for_nothing_is_refused(bucket: Any) -> None:
    for name in ["nothing", "nothing/*.jsonl", "nothing/"]:
        with pytest.raises(UserError, match="an input does not exist"):
            names_of(f"s3://{bucket.name}/{name}")


def test_a_file_that_describes_a_saved_data_set_is_refused(bucket: Any, corpus: Path) -> None:
    upload(bucket, corpus)
    with pytest.raises(UserError, match="describes a saved dataset"):
        names_of(f"s3://{bucket.name}/data/saved/state.json")


def test_planning_looks_into_one_file_of_each_suffix(
    bucket: Any, s3_port: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for number in range(80):
        bucket.put_object(Key=f"data/{number:05d}.jsonl", Body=b'{"text": "x"}\n' * 2000)
    with chaos(s3_port) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        from tokenmill.read.sources import find_sources

        found = find_sources([f"s3://{bucket.name}/data"], PerInput(), PLACES)
        assert {source.format for source in found} == {"jsonl"}
        assert proxy.counted["GET"] + proxy.counted["HEAD"] == 3  # HEAD, LIST, the first bytes


def test_a_file_that_is_not_what_its_suffix_says_is_damaged(
    bucket: Any, tokenizer_path: Path, tmp_path: Path
) -> None:
    lines = b'{"text": "x"}\n' * 2000
    bucket.put_object(Key="data/a.jsonl", Body=lines)
    bucket.put_object(Key="data/b.jsonl", Body=zstd.compress(lines))
    name = f"s3://{bucket.name}/data"
    with pytest.raises(DataError, match="is damaged") as error:
        build([name], tokenizer_path, tmp_path / "one")
    assert "its format is jsonl zstd, but files with its suffix are jsonl none" in str(error.value)
    assert error.value.where == f"{name}/b.jsonl"
    build([name], tokenizer_path, tmp_path / "two", on_bad_file="quarantine")


def test_an_input_that_changes_after_planning_stops_the_build(
    bucket: Any, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 13 of the fault matrix: the object is overwritten with one of the same size."""
    bucket.put_object(Key="a.jsonl", Body=b'{"text": "before"}\n' * 5000)
    cut = units.choose_unit_bytes

    def overwrite(*arguments: Any, **options: Any) -> int:
        bucket.put_object(Key="a.jsonl", Body=b'{"text": "after!"}\n' * 5000)
        return cut(*arguments, **options)

    monkeypatch.setattr("tokenmill.run.task.choose_unit_bytes", overwrite)
    with pytest.raises(InputChangedError, match="an input changed") as error:
        build([f"s3://{bucket.name}/a.jsonl"], tokenizer_path, tmp_path / "out")
    assert error.value.exit_code == 8


def test_public_objects_are_read_without_keys(
    bucket: Any, tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", texts(0, 900))
    bucket.upload_file(str(path), "a.jsonl", ExtraArgs={"ACL": "public-read"})
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("TOKENMILL_ANONYMOUS", "1")
    local = build([str(path)], tokenizer_path, tmp_path / "local")
    assert build([f"s3://{bucket.name}/a.jsonl"], tokenizer_path, tmp_path / "s3") == local


def test_files_of_web_servers_are_inputs(
    bucket: Any, s3_port: int, tokenizer_path: Path, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a b.jsonl", texts(0, 900))
    bucket.upload_file(str(path), "a b.jsonl", ExtraArgs={"ACL": "public-read"})
    address = f"http://127.0.0.1:{s3_port}/{bucket.name}"
    local = build([str(path)], tokenizer_path, tmp_path / "local")
    assert build([f"{address}/a%20b.jsonl"], tokenizer_path, tmp_path / "web") == local
    with pytest.raises(UserError, match="does not name a file"):
        names_of(f"{address}/")
    with pytest.raises(UserError, match="an input does not exist"):
        names_of(f"{address}/nothing.jsonl")


@pytest.mark.parametrize(
    ("name", "out", "what"),
    [
        ("data", "data", "is not empty and holds no dataset"),
        ("data", "data/out", "the output prefix is inside an input"),
        ("", "out", "the output prefix is inside an input"),
        ("da*", "data/out", "the output prefix is inside an input"),
        ("data/**/*.jsonl", "data/out", "the output prefix is inside an input"),
        ("data/in/*.jsonl", "data", "is not empty and holds no dataset"),
    ],
)
def test_no_output_is_read_and_no_input_written_over(
    bucket: Any, tokenizer_path: Path, name: str, out: str, what: str
) -> None:
    bucket.put_object(Key="data/in/a.jsonl", Body=b'{"text": "x"}\n')
    place = f"s3://{bucket.name}"
    with pytest.raises(TokenmillError, match=what):
        tokenmill.build([f"{place}/{name}"], tokenizer_path, f"{place}/{out}", workers=1)
    assert [found.key for found in bucket.objects.all()] == ["data/in/a.jsonl"]


@pytest.mark.parametrize(
    ("name", "out"), [("data", "data2"), ("data/*.jsonl", "data/out"), ("data/a.jsonl", "data/b")]
)
def test_outputs_beside_inputs_are_no_inputs(name: str, out: str) -> None:
    refuse_output_among([f"s3://bucket/{name}"], f"s3://bucket/{out}")

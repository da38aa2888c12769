"""What the user names becomes an ordered list of files, each of a kind that can be read."""

from __future__ import annotations

import errno
import gzip
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tokenmill.core.errors import InputChangedError, StorageError, UserError
from tokenmill.read.per_input import PerInput
from tokenmill.read.places.local import regular_file
from tokenmill.read.sources import find_sources

LINE = b'{"text": "a"}\n'


def put(folder: Path, *names: str, data: bytes = LINE) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def names_of(*inputs: str | Path) -> list[str]:
    return [source.name for source in find_sources([str(name) for name in inputs])]


def kind_of(path: Path, data: bytes) -> tuple[str, str]:
    path.write_bytes(data)
    (source,) = find_sources([str(path)])
    return source.format, source.compression


def test_a_folder_gives_its_files_sorted_then_its_folders(tmp_path: Path) -> None:
    put(tmp_path, "b.jsonl", "a.jsonl", "sub/z.jsonl", "sub/deep/a.jsonl", "c.jsonl", "Z.jsonl")
    assert names_of(tmp_path) == [
        "Z.jsonl", "a.jsonl", "b.jsonl", "c.jsonl", "sub/z.jsonl", "sub/deep/a.jsonl",
    ]  # fmt: skip


def test_inputs_keep_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    put(tmp_path, "b/1.jsonl", "a/2.jsonl", "a/1.jsonl", "c.jsonl")
    inputs = [tmp_path / "c.jsonl", tmp_path / "b", tmp_path / "a"]
    assert names_of(*inputs) == ["c.jsonl", "b/1.jsonl", "a/1.jsonl", "a/2.jsonl"]
    assert [source.index for source in find_sources([str(name) for name in inputs])] == [0, 1, 2, 3]


def test_globs_are_sorted_and_may_match_folders(tmp_path: Path) -> None:
    put(tmp_path, "part-2.jsonl", "part-1.jsonl", "part-3/a.jsonl", "other.jsonl")
    assert names_of(tmp_path / "part-*") == ["part-1.jsonl", "part-2.jsonl", "part-3/a.jsonl"]
    assert names_of(tmp_path / "**" / "a.jsonl") == ["a.jsonl"]


def test_hidden_files_and_folders_are_not_inputs(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", ".hidden.jsonl", ".cache/b.jsonl")
    assert names_of(tmp_path) == ["a.jsonl"]


@pytest.mark.parametrize(
    "name",
    [
        "with space.jsonl",
        "new\nline.jsonl",
        "emoji 😀.jsonl",
        "-dash.jsonl",
        "[ab]*?.jsonl",
        "q'\".jsonl",
    ],
)
def test_odd_file_names_are_taken_as_they_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, name)
    monkeypatch.chdir(tmp_path)
    assert names_of(tmp_path) == names_of(name) == names_of(tmp_path / name) == [name]


def test_a_name_that_is_not_utf8_is_refused_before_work_starts(tmp_path: Path) -> None:
    try:
        put(tmp_path, os.fsdecode(b"\xff.jsonl"))
    except OSError:
        pytest.skip("this file system knows only UTF-8 names")
    with pytest.raises(UserError, match="its path is not valid UTF-8"):
        find_sources([str(tmp_path)])


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl")
    (tmp_path / "link.jsonl").symlink_to("a.jsonl")
    path = str(tmp_path / "a.jsonl")
    for inputs in ([path, path], [path, str(tmp_path)], [str(tmp_path)]):
        with pytest.raises(UserError, match="an input is named twice"):
            find_sources(inputs)


def test_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dangling.jsonl").symlink_to("nowhere")
    (tmp_path / "empty").mkdir()
    for name, message in {
        "missing.jsonl": "an input does not exist",
        "*.parquet": "an input does not exist",
        "dangling.jsonl": "cannot read an input",
        "empty": "no input files",
    }.items():
        with pytest.raises(UserError, match=message):
            find_sources([str(tmp_path / name)])


def test_a_dataset_that_is_named_without_its_scheme_is_recognized() -> None:
    with pytest.raises(UserError, match="an input does not exist") as caught:
        find_sources(["finewebedu"])
    assert caught.value.hint == "did you mean hf://fineweb-edu?"


def test_a_folder_that_cannot_be_listed_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.jsonl", "closed/b.jsonl")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match="cannot read a folder"):
        find_sources([str(tmp_path)])


def test_a_stray_readme_among_records_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl")
    put(tmp_path, "README.md", data=b"# Read me\n")
    with pytest.raises(UserError, match="mix plain text and records") as caught:
        find_sources([str(tmp_path)])
    assert caught.value.where == "README.md is plain text, a.jsonl contains records"
    assert caught.value.hint == (
        "to read both, add --format '*.md=text', or build each kind on its own and combine the "
        "datasets with tokenmill.mix; else name only the files to read"
    )
    told = find_sources([str(tmp_path)], PerInput(["*.md=text"]))
    assert [s.format for s in told] == ["text", "jsonl"]
    with pytest.raises(UserError, match="mix plain text and records"):
        find_sources([str(tmp_path)], PerInput(["a.jsonl=jsonl"]))
    assert [s.format for s in find_sources([str(tmp_path)], PerInput("text"))] == ["text", "text"]


def test_a_pattern_names_a_file_a_folder_or_a_glob_and_the_last_that_matches_counts(
    tmp_path: Path,
) -> None:
    names = ["a.jsonl", "year=1/a.jsonl", "year=1/deep/b.jsonl"]
    put(tmp_path, *names)

    def fields(*patterns: str) -> list[str]:
        sources = find_sources([str(tmp_path)], PerInput(text_field=list(patterns)))
        assert [source.name for source in sources] == names
        return [source.text_field for source in sources]

    assert fields("body") == ["", "", ""]
    assert fields("a.jsonl=x") == ["x", "x", ""]
    assert fields("year=1=x") == ["", "x", "x"]
    assert fields("year*/*.jsonl=x", "body") == ["", "x", ""]
    assert fields("year*/**/*.jsonl=x", "b.jsonl=y") == ["", "x", "y"]
    assert fields(f"{tmp_path}/a.jsonl=x") == ["x", "", ""]
    assert fields(f"{tmp_path.name}=x", "deep/=y") == ["x", "x", "y"]
    with pytest.raises(UserError, match="matches no input"):
        fields(f"{tmp_path.parent.name}=x")  # a folder above the input
    put(tmp_path, "[c].jsonl")
    names.insert(0, "[c].jsonl")
    assert fields("[c].jsonl=x", f"{tmp_path}//year=1//a.jsonl=y") == ["x", "", "y", ""]


def test_a_pattern_that_matches_no_input_is_named(tmp_path: Path) -> None:
    put(tmp_path, "forum.jsonl", "b/c.jsonl")
    with pytest.raises(UserError) as caught:
        find_sources([str(tmp_path)], PerInput(text_field=["forum.json=body"]))
    assert str(caught.value) == (
        "--text-field forum.json=body matches no input\n"
        "  why: the inputs are forum.jsonl, b/c.jsonl\n"
        "  next: did you mean --text-field forum.jsonl=body?"
    )
    with pytest.raises(UserError, match=r"--format \*\.txt=text matches no input"):
        find_sources([str(tmp_path)], PerInput(["*.txt=text"]))


def test_an_empty_file_does_not_make_a_mixture(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl")
    put(tmp_path, "_SUCCESS", data=b"")
    assert names_of(tmp_path) == ["_SUCCESS", "a.jsonl"]


def test_format_and_compression_are_told_by_content_not_by_name(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"]})
    sink, file, stream = (pa.BufferOutputStream() for _ in range(3))
    pq.write_table(table, sink)
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    found = {
        "jsonl.txt": kind_of(tmp_path / "jsonl.txt", LINE),
        "jsonl.gz": kind_of(tmp_path / "jsonl.gz", LINE),
        "long record": kind_of(tmp_path / "x", b'{"text": "%s"}\n' % (b"a" * 9000)),
        "after a BOM": kind_of(tmp_path / "x", b"\xef\xbb\xbf" + LINE),
        "gzip.jsonl": kind_of(tmp_path / "gzip.jsonl", gzip.compress(LINE)),
        "gzip.zst": kind_of(tmp_path / "gzip.zst", gzip.compress(b"text")),
        "jsonl.gz.txt": kind_of(tmp_path / "a.jsonl.txt", gzip.compress(b"{}\n")),
        "parquet.json": kind_of(tmp_path / "x.json", sink.getvalue().to_pybytes()),
        "arrow.parquet": kind_of(tmp_path / "x.parquet", file.getvalue().to_pybytes()),
        "stream.txt": kind_of(tmp_path / "x.txt", stream.getvalue().to_pybytes()),
        "text": kind_of(tmp_path / "x", b"once upon a time\n"),
        "text that opens a brace": kind_of(tmp_path / "x", b"{ is a brace\n"),
    }
    assert found == {
        "jsonl.txt": ("jsonl", "none"),
        "jsonl.gz": ("jsonl", "none"),
        "long record": ("jsonl", "none"),
        "after a BOM": ("jsonl", "none"),
        "gzip.jsonl": ("jsonl", "gzip"),
        "gzip.zst": ("text", "gzip"),
        "jsonl.gz.txt": ("jsonl", "gzip"),
        "parquet.json": ("parquet", "none"),
        "arrow.parquet": ("arrow-file", "none"),
        "stream.txt": ("arrow-stream", "none"),
        "text": ("text", "none"),
        "text that opens a brace": ("text", "none"),
    }


def test_a_damaged_head_is_left_to_the_unit_that_reads_the_file(tmp_path: Path) -> None:
    assert kind_of(tmp_path / "a.jsonl.gz", gzip.compress(LINE)[:12]) == ("jsonl", "gzip")


def test_a_source_knows_when_its_file_has_changed(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl")
    (source,) = find_sources([str(tmp_path)])
    source.require_unchanged()
    for other in (replace(source, num_bytes=1), replace(source, mtime_ns=1)):
        with pytest.raises(InputChangedError, match="an input changed"):
            other.require_unchanged()


def test_an_input_on_a_failing_disk_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Path) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "stat", fail)
    with pytest.raises(StorageError, match="cannot read an input"):
        regular_file(tmp_path / "a.jsonl")

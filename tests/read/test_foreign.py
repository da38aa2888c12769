"""Files of formats that are not read are refused together, before work starts, with what to do."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokenmill
from tokenmill.core.errors import UserError
from tokenmill.load.text.pieces import TextCorpus
from tokenmill.read.fields import Fields
from tokenmill.read.foreign import foreign_kind
from tokenmill.read.per_input import PerInput
from tokenmill.read.sources import find_sources
from tokenmill.reports.bench import take_documents

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n"
TEXT = b"Once upon a time.\n"
RECORDS = b'{"text": "a"}\n{"text": "b"}\n'


def zipped(*names: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "content")
    return file.getvalue()


def tarred() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo("a.txt")
        entry.size = len(TEXT)
        archive.addfile(entry, io.BytesIO(TEXT))
    return file.getvalue()


def saved(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def parquet() -> bytes:
    return saved(lambda file: pq.write_table(pa.table({"text": ["a"]}), file))


def safetensors() -> bytes:
    header = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    return struct.pack("<Q", len(header)) + header + b"\x00" * 4


BY_MAGIC = {
    "a.dat": (PDF, "PDF"),
    "b.txt": (PDF, "PDF"),
    "c": (PNG, "images"),
    "d.jpeg.txt": (b"\xff\xd8\xff\xe0\x00\x10JFIF", "images"),
    "e": (zipped("a.txt"), "archives"),
    "f": (zipped("[Content_Types].xml", "word/document.xml"), "office documents or e-books"),
    "g": (zipped("archive/data.pkl", "archive/version"), "pickles or model weights"),
    "h": (zipped("x.npy"), "NumPy arrays"),
    "i": (tarred(), "archives"),
    "j.bin": (pickle.dumps({"text": "a"}), "pickles or model weights"),
    "k": (saved(lambda file: np.save(file, np.arange(3))), "NumPy arrays"),
    "l": (b"\x7fELF\x02\x01\x01\x00", "executables"),
    "m": (b"Obj\x01\x04\x16avro.schema", "ORC, Avro, HDF5 or TFRecord"),
    "n": (b"\x89HDF\r\n\x1a\n\x00", "ORC, Avro, HDF5 or TFRecord"),
    "o": (safetensors(), "pickles or model weights"),
    "p": (b"WARC/1.0\r\nWARC-Type: response\r\n", "WARC"),
    "q": (b"RIFF\x24\x00\x00\x00WAVEfmt ", "audio or video"),
    "r": (b"\x00\x00\x00\x18ftypmp42", "audio or video"),
    "s": (b"7z\xbc\xaf\x27\x1c\x00\x04", "archives"),
    "t.parquet": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n",
        "Git LFS pointers",
    ),
    "u.txt": ("\ufeffsome text".encode("utf-16"), "UTF-16 text"),
    "x": (b"SQLite format 3\x00\x10\x00", "SQLite databases"),
    "v.dat": (b"\x00\x01\x02", "binary data"),
    "w.txt": ("some text".encode("utf-16-le"), "binary data"),
}

BY_SUFFIX = {
    "b.DOCX": (b"hello", "office documents or e-books"),
    "c.html": (b"hello", "HTML"),
    "d.xml": (b"<a/>", "XML"),
    "e.ipynb": (b'{"cells": []}', "notebooks"),
    "f.pkl": (b"(lp0\n.", "pickles or model weights"),
    "g.parquet": (TEXT, "Arrow or Parquet by name only"),
    "h.orc": (b"ORC\x0a\x00", "ORC, Avro, HDF5 or TFRecord"),
}

BY_SHAPE = {
    "g": (b"<!DOCTYPE html>\n<html>", "HTML"),
    "h.dat": (b'<?xml version="1.0"?>\n<a/>', "XML"),
}

COMPRESSED = {
    "t.rtf.gz": (gzip.compress(b"hello"), "office documents or e-books"),
    "x.tar.gz": (gzip.compress(tarred()), "archives"),
    "x.tgz": (gzip.compress(tarred()), "archives"),
    "x.dat.bz2": (bz2.compress(PDF), "PDF"),
    "x.html.xz": (lzma.compress(b"<p>hello"), "HTML"),
    "a.parquet.gz": (gzip.compress(parquet()), "compressed Parquet or Arrow"),
    "a.txt.gz": (gzip.compress(gzip.compress(TEXT)), "compressed more than once"),
    "a.warc.gz": (gzip.compress(b"WARC/1.0\r\n"), "WARC"),
}

FOREIGN = {**BY_MAGIC, **{f"1{name}": case for name, case in BY_SUFFIX.items()}}
FOREIGN |= {f"2{name}": case for name, case in BY_SHAPE.items()}
FOREIGN |= {f"3{name}": case for name, case in COMPRESSED.items()}

READ = {
    "a.jsonl": (RECORDS, "jsonl"),
    "array-in-first-line.jsonl": (b'["not", "an", "object"]\n' + RECORDS, "jsonl"),
    "damaged.jsonl": (b'{"text": "a\n' + RECORDS, "jsonl"),
    "zero-byte.jsonl": (b'{"text": "\x00"}\n' + RECORDS, "jsonl"),
    "one.json": (b'{"text": "a"}', "jsonl"),
    "a.json": (b'\n [{"text": "a"}]', "json-array"),
    "b.dat": (b'[\n  {"text": "a"},\n]', "json-array"),
    "c": (json.dumps([{"text": "x" * 9000}]).encode(), "json-array"),
    "d": (b'\xef\xbb\xbf["a", "b"]', "json-array"),
    "e.json": (json.dumps({"text": "a"}, indent=2).encode(), "json-array"),
    "f.jsonl": (json.dumps({"text": "a"}, indent=2).encode(), "json-array"),
    "a.json.gz": (gzip.compress(b'[{"text": "a"}]'), "json-array"),
    "records.txt": (RECORDS, "jsonl"),
    "markup.txt": (b"<html> is how a page begins.\n", "text"),
    "link.md": (b"[the docs](https://example.org)\n", "text"),
    "quotes.txt": (b'["Stop!", she said]\n', "text"),
    "brace.md": (b'{\n"a": 1\n}\n', "text"),
    "citation": (b"[1] Knuth, The Art of Computer Programming\n", "text"),
    "wiki_00": (b'<doc id="12" title="Anarchism">\n[[Politics]]\n', "text"),
    "europarl.pt": ("Declaração\n".encode(), "text"),
    "list.py": (b'["a", "b"]\n', "text"),
    "page.php": (b"<html>\n<?php echo 1 ?>\n", "text"),
    "orc": (b"ORC and elf went to the inn.\n", "text"),
    "pk": (b"PK is short for Philip Katz; see [Content_Types].xml\n", "text"),
    "riff": (b"RIFF, a story: WAVE on wave\n", "text"),
    "a.csv": (b"id,text\n1,hello\n", "csv"),
    "a.TSV": (b"id\ttext\n1\thello\n", "tsv"),
    "a.csv.gz": (gzip.compress(b"id,text\n1,hello\n"), "csv"),
    "zero-byte.csv": (b"id,text\n1,\x00\n", "csv"),
    "objects.csv": (RECORDS, "jsonl"),
    "commas": (b"id,text\n1,hello\n", "text"),
    "empty.csv": (b"", "csv"),
}


def put(folder: Path, cases: dict[str, tuple[bytes, str]]) -> None:
    for name, (data, _) in cases.items():
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_format_is_refused_as_what_it_is(name: str, tmp_path: Path) -> None:
    data, kind = FOREIGN[name]
    path = tmp_path / name.lstrip("123")
    path.write_bytes(data)
    with pytest.raises(UserError, match="unsupported format") as caught:
        find_sources([str(path)])
    assert (caught.value.where, caught.value.why) == (str(path), kind)
    assert "--format text" in caught.value.hint
    assert find_sources([str(path)], PerInput("text"))[0].format == "text"


@pytest.mark.parametrize("name", READ)
def test_text_and_records_that_look_like_something_else_are_read(name: str, tmp_path: Path) -> None:
    data, kind = READ[name]
    (tmp_path / name).write_bytes(data)
    assert find_sources([str(tmp_path / name)])[0].format == kind


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ("z.jsonl", "name only the other inputs"),
        ("z.txt", "read all inputs as plain text with --format text"),
    ],
)
def test_plain_text_is_no_advice_among_records(other: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / "a.rtf").write_bytes(b"hello")
    (tmp_path / other).write_bytes(RECORDS if other == "z.jsonl" else b"words\n")
    with pytest.raises(UserError) as caught:
        find_sources([str(tmp_path)])
    assert caught.value.hint.endswith(f"pandoc; or {advice}")


def test_all_files_of_a_build_are_refused_in_one_list(tmp_path: Path) -> None:
    names = [*(f"{letter}.ipynb" for letter in "abcde"), "f.html.gz", "new\nline.png", "z.jsonl"]
    data = {"f.html.gz": gzip.compress(b"<p>hello"), "new\nline.png": PNG, "z.jsonl": RECORDS}
    for name in names:
        (tmp_path / name).write_bytes(data.get(name, b"a,b\n"))
    with pytest.raises(UserError) as caught:
        find_sources([str(tmp_path)])
    assert (
        str(caught.value)
        == f"""cannot read 7 inputs: unsupported formats
  why: HTML (1): {tmp_path}/f.html.gz
         decompress it, then extract the text first, for example with trafilatura
       images (1): {tmp_path}/new\\nline.png
         omit them
       notebooks (5): {tmp_path}/a.ipynb, {tmp_path}/b.ipynb, {tmp_path}/c.ipynb and 2 more
         convert them: jupyter nbconvert --to markdown a.ipynb
  next: convert these files or omit them; or name only the other inputs"""
    )


def test_format_text_takes_a_folder_of_source_code_with_tables_and_pages(
    tokenizer_path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    put(folder, {"a.rtf": (b"a,b\n", ""), "b.html": (b"<p>", ""), "c.pdf": (b"[1]\n", "")})
    put(folder, {"d.py": (b"x = 1\n", ""), "e.xml.gz": (gzip.compress(b"<a/>"), "")})
    options = {"workers": 1}
    with pytest.raises(UserError, match="cannot read 4 inputs"):
        tokenmill.build(folder, tokenizer_path, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    built = tokenmill.build(folder, tokenizer_path, tmp_path / "out", format="text", **options)
    assert built.dataset.num_documents == 5


def test_every_way_to_read_inputs_refuses_them_alike(tokenizer_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.html"
    path.write_bytes(b"id,text\n1,hello\n")
    for read in (
        lambda: tokenmill.build(path, tokenizer_path, tmp_path / "out"),
        lambda: tokenmill.estimate(path, tokenizer_path),
        lambda: TextCorpus([str(path)], Fields()),
        lambda: take_documents(10, [str(path)], "text"),
    ):
        with pytest.raises(UserError, match="unsupported format"):
            read()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "head",
    [b"GIF89a is the header of a GIF.", b"%PDF- begins a PDF.", b"GGUF, a format", b"PAR1, too"],
)
def test_prose_that_begins_like_another_format_is_text(head: bytes) -> None:
    assert foreign_kind(head, Path("a.txt")) == ""
    assert foreign_kind(head, Path("a")) != ""
    assert foreign_kind(head + b"\x00\xff", Path("a.txt")) != ""

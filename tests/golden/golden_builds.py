"""Builds whose every byte was recorded: each kind of input, tokenizer, export and training.

python tests/golden/golden_builds.py     # records anew; only a new format version may need it
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tokenmill

HERE = Path(__file__).parent / "builds"
TOKENIZERS = HERE / "tokenizers"
RECORDED = HERE / "recorded.json"

TEXTS = [
    "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs.",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.\nZweite Zeile, 1234567.",
    "Съешь ещё этих мягких французских булок, да выпей же чаю.",
    "いろはにほへと ちりぬるを\tわかよたれそ つねならむ",
    "def f(x):\n    return x + 1  # e\u0301 and \u00e9, \ufb01 and fi\n",
    "emoji 😀👩‍👩‍👧, a tab\t, two  spaces, <|endoftext|> as text, \u200bzero width",
    "x",
    "The end. " * 12,
]
LANGUAGES = ["en", "de", "ru", "ja", "py", "xx", "xx", "en"]


def rows() -> list[dict[str, str]]:
    """One record a text."""
    return [
        {"id": f"d{number}", "text": text, "lang": language}
        for number, (text, language) in enumerate(zip(TEXTS, LANGUAGES, strict=True))
    ]


def json_lines() -> bytes:
    """The records, and a line that is none."""
    lines = [json.dumps(row, ensure_ascii=False) for row in rows()]
    return ("\n".join([*lines[:3], "{no JSON", *lines[3:]]) + "\n").encode()


def delimited(delimiter: str) -> bytes:
    """The records as CSV or TSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, ["id", "text", "lang"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows())
    return out.getvalue().encode()


def arrow(write: Callable[[Any, pa.Table], None]) -> bytes:
    """The records as a table."""
    sink = io.BytesIO()
    write(sink, pa.Table.from_pylist(rows()))
    return sink.getvalue()


def ipc_file(sink: Any, table: pa.Table) -> None:
    """Write an Arrow file of two record batches."""
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=5)


def ipc_stream(sink: Any, table: pa.Table) -> None:
    """Write an Arrow stream."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def wet() -> bytes:
    """The texts as a WET file."""
    records = []
    for number, text in enumerate(TEXTS):
        content = text.encode()
        head = (
            "WARC/1.0\r\nWARC-Type: conversion\r\n"
            f"WARC-Target-URI: http://example.org/{number}\r\n"
            f"WARC-Record-ID: <urn:uuid:00000000-0000-0000-0000-00000000000{number}>\r\n"
            "WARC-Date: 2024-01-01T00:00:00Z\r\nContent-Type: text/plain\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        records.append(head.encode() + content + b"\r\n\r\n")
    return b"".join(records)


def conversations() -> bytes:
    """Four conversations."""
    turns = [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": TEXTS[number]},
                {"role": "assistant", "content": TEXTS[-1 - number]},
            ]
        }
        for number in range(4)
    ]
    return "".join(json.dumps(turn, ensure_ascii=False) + "\n" for turn in turns).encode()


Input = tuple[str, Callable[[], bytes], dict[str, Any]]

COLUMNS: dict[str, Any] = {"id_field": "id", "keep": ["lang"]}
INPUTS: dict[str, Input] = {
    "JSON Lines": ("a.jsonl", json_lines, {**COLUMNS, "max_bad": 0.5}),
    "JSON Lines, gzip": (
        "a.jsonl.gz", lambda: gzip.compress(json_lines(), mtime=0), {**COLUMNS, "max_bad": 0.5},
    ),
    "JSON array": ("a.json", lambda: json.dumps(rows(), indent=1).encode(), COLUMNS),
    "CSV": ("a.csv", lambda: delimited(","), COLUMNS),
    "TSV": ("a.tsv", lambda: delimited("\t"), COLUMNS),
    "Parquet": (
        "a.parquet",
        lambda: arrow(lambda sink, table: pq.write_table(table, sink, row_group_size=3)),
        COLUMNS,
    ),
    "Arrow file": ("a.arrow", lambda: arrow(ipc_file), COLUMNS),
    "Arrow stream": ("a.arrow", lambda: arrow(ipc_stream), COLUMNS),
    "WET": ("a.warc.wet", wet, {}),
    "text": ("a.txt", lambda: TEXTS[1].encode(), {}),
    "text with a separator": (
        "a.txt", lambda: "\n--\n".join(TEXTS).encode(), {"separator": "\n--\n"},
    ),
    "a template": (
        "a.jsonl", json_lines, {"text_template": "[{lang}] {text}", "max_bad": 0.5},
    ),
    "conversations": (
        "a.jsonl", conversations, {"chat": "messages", "chat_template": "chatml", "max_bad": 0.5},
    ),
    "validation and a limit": (
        "a.jsonl", json_lines, {"validation": 0.4, "max_documents": 6, "max_bad": 0.5},
    ),
    "prefix tokens and loss": (
        "a.jsonl", json_lines, {"special_tokens": "control", "max_bad": 0.5},
    ),
}  # fmt: skip

OTHER_TOKENIZERS: dict[str, dict[str, Any]] = {
    "wordpiece.json": {"eos": "[SEP]"},
    "unigram.json": {"eos": "</s>"},
    "byte-fallback-bpe.json": {"eos": "</s>"},
    "ranks.tiktoken": {"pattern": r"\s?\S+|\s+", "eos": 10},
    "sentencepiece-bpe.model": {},
    "sentencepiece-unigram.model": {},
}

TRAININGS: dict[str, dict[str, Any]] = {
    "bpe": {"vocabulary": 330},
    "bpe of smaller sizes": {"vocabulary": 330, "sizes": [290, 310], "digits": "groups-right"},
    "wordpiece": {"model": "wordpiece", "vocabulary": 200},
    "wordlevel": {"model": "wordlevel", "vocabulary": 60},
    "unigram": {"model": "unigram", "vocabulary": 150},
    "sentencepiece-bpe": {"model": "sentencepiece-bpe", "vocabulary": 300},
    "parity": {"vocabulary": 330, "by": "lang", "parity": "base"},
    "special tokens": {"vocabulary": 330, "special": ["<a>", "<b>=300"], "reserve": 4},
}


def digest(content: bytes) -> str:
    """Enough of a SHA-256 to tell a difference."""
    return hashlib.sha256(content).hexdigest()[:16]


def described(folder: Path) -> dict[str, Any]:
    """The identity of a dataset, and the digests of what it holds."""
    dataset = tokenmill.open(folder)
    documents = [row for shard in dataset.shards for row in shard.documents().to_pylist()]
    shards = sorted((folder / "tokens").iterdir()) + sorted((folder / "rejected").glob("*"))
    return {
        "dataset_id": dataset.manifest.dataset_id,
        "documents": digest(json.dumps(documents, default=str, sort_keys=True).encode()),
        "files": {path.name: digest(path.read_bytes()) for path in shards},
    }


def built(name: str, content: bytes, folder: Path, tokenizer: str, **options: Any) -> Path:
    """Build a dataset of one file."""
    (folder / "data").mkdir(parents=True)
    (folder / "data" / name).write_bytes(content)
    tokenmill.build(
        folder / "data" / name, TOKENIZERS / tokenizer, folder / "out", workers=1, **options
    )
    return folder / "out"


def inputs(folder: Path) -> Iterator[tuple[str, Any]]:
    """A dataset of each kind of input."""
    for name, (file, content, options) in INPUTS.items():
        made = built(file, content(), folder / name.replace(",", ""), "byte-bpe.json", **options)
        yield name, described(made)


def tokenizers(folder: Path) -> Iterator[tuple[str, Any]]:
    """A dataset of each kind of tokenizer."""
    for name, options in OTHER_TOKENIZERS.items():
        made = built("a.jsonl", json_lines(), folder / name, name, max_bad=0.5, **options)
        yield name, described(made)


def exports(folder: Path) -> Iterator[tuple[str, Any]]:
    """The rows of a plan in each format, as their official readers give them."""
    out = built("a.jsonl", json_lines(), folder / "dataset", "byte-bpe.json", max_bad=0.5)
    tokenmill.pack(out, name="plan", sequence_length=32)
    for form, columns in (
        ("npy", ["input_ids"]),
        ("npy", ["input_ids", "labels", "position_ids"]),
        ("parquet", ["input_ids", "labels"]),
        ("pt", ["input_ids", "labels"]),
        ("datasets", ["input_ids", "labels"]),
    ):
        name = f"{form} of {', '.join(columns)}"
        rows = folder / name
        tokenmill.export(out, rows, format=form, columns=columns, sequences_per_file=7)
        yield name, digest(json.dumps(read_rows(rows, form)).encode())


def read_rows(folder: Path, form: str) -> list[Any]:
    """All rows of an export, file by file."""
    if form == "npy":
        return [np.load(path).tolist() for path in sorted(folder.glob("*.npy"))]
    if form == "parquet":
        return [pq.read_table(path).to_pylist() for path in sorted(folder.glob("*.parquet"))]
    if form == "pt":
        import torch

        loaded = [torch.load(path, weights_only=True) for path in sorted(folder.glob("*.pt"))]
        return [{key: part[key].tolist() for key in sorted(part)} for part in loaded]
    files = sorted(folder.rglob("*.arrow"))
    return [pa.ipc.open_stream(path).read_all().to_pylist() for path in files]


def trainings(folder: Path) -> Iterator[tuple[str, Any]]:
    """A tokenizer of each model, and its smaller sizes."""
    source = folder / "a.jsonl"
    source.write_bytes(json_lines() * 3)
    for name, options in TRAININGS.items():
        out = folder / name
        tokenmill.train_tokenizer(source, out, workers=1, max_bad=0.5, **options)
        kept = [*out.rglob("tokenizer.json"), *out.rglob("*.model")]
        yield name, {str(path.relative_to(out)): digest(path.read_bytes()) for path in sorted(kept)}


PARTS: dict[str, Callable[[Path], Iterator[tuple[str, Any]]]] = {
    "inputs": inputs,
    "tokenizers": tokenizers,
    "exports": exports,
    "trainings": trainings,
}


def made(part: str, folder: Path) -> dict[str, Any]:
    """What today's code makes of a part."""
    folder.mkdir(parents=True, exist_ok=True)
    return dict(PARTS[part](folder))


if __name__ == "__main__":
    into = Path(sys.argv[1])
    recorded = {part: made(part, into / part) for part in PARTS}
    RECORDED.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")

"""The main job: every document's ids, in order, with exactly one end-of-document token."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import contents, documents, random_texts, texts_of, write_corpus

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import DataError
from tokenmill.read import units

Reference = Callable[[str], list[int]]
EOS = 0


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
    monkeypatch.setattr(units, "PIECE_BYTES", 4 << 10)


def expected(texts: list[str], reference: Reference) -> list[list[int]]:
    return [[*ids, EOS] for text in texts if (ids := reference(text))]


def test_ids_are_the_references_for_every_document(
    tmp_path: Path, tokenizer_path: Path, reference: Reference
) -> None:
    paths = write_corpus(tmp_path / "data")
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    assert documents(tmp_path / "out") == expected(texts_of(paths), reference)


def test_one_two_and_three_workers_write_the_same_bytes(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    write_corpus(tmp_path / "data")
    outs = [tmp_path / f"out-{workers}" for workers in (1, 2, 3)]
    for workers, out in enumerate(outs, 1):
        report = tokenmill.build(
            tmp_path / "data", tokenizer_path, out, workers=workers, id_field="id", validation=0.1
        )
        assert len(report.dataset.shards) > 5
    assert contents(outs[0]) == contents(outs[1]) == contents(outs[2])


def test_the_memory_budget_changes_no_byte(tmp_path: Path, tokenizer_path: Path) -> None:
    write_corpus(tmp_path / "data")
    for memory in ("512MiB", "4GB"):
        tokenmill.build(
            tmp_path / "data", tokenizer_path, tmp_path / memory, workers=1, memory=memory
        )
    assert contents(tmp_path / "512MiB") == contents(tmp_path / "4GB")


@pytest.mark.parametrize(
    "kind", ["gz", "zst", "bz2", "xz", "parquet", "one.parquet", "arrow", "arrows"]
)
def test_every_format_gives_the_ids_of_plain_json_lines(
    kind: str, tmp_path: Path, tokenizer_path: Path, reference: Reference
) -> None:
    texts = random_texts(1500)
    plain = write_jsonl(tmp_path / "plain.jsonl", texts)
    path = tmp_path / f"data.{kind}"
    data = plain.read_bytes()
    table = pa.table({"text": texts})
    match kind:
        case "gz":
            path.write_bytes(gzip.compress(data[:9000]) + gzip.compress(data[9000:]))
        case "zst":
            zstd = pytest.importorskip("backports.zstd")
            path.write_bytes(zstd.compress(data[:9000]) + zstd.compress(data[9000:]))
        case "bz2":
            path.write_bytes(bz2.compress(data))
        case "xz":
            path.write_bytes(lzma.compress(data))
        case "parquet" | "one.parquet":  # all workers read one row group
            size = 400 if kind == "parquet" else None
            pq.write_table(table, path, row_group_size=size)
        case "arrow":
            with pa.ipc.new_file(str(path), table.schema) as writer:
                writer.write_table(table, max_chunksize=300)
        case "arrows":
            with pa.ipc.new_stream(str(path), table.schema) as stream:
                stream.write_table(table, max_chunksize=300)
    workers = 2 if "parquet" in kind else 1
    report = tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=workers)
    assert documents(tmp_path / "out") == expected(texts, reference)
    assert len(report.dataset.shards) > 1


def test_plain_text_is_one_document_a_file_or_split_at_a_separator(
    tmp_path: Path, tokenizer_path: Path, reference: Reference
) -> None:
    texts = ["one\ntwo\n", "three"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    files = [tmp_path / "0.txt", tmp_path / "1.txt"]
    tokenmill.build(files, tokenizer_path, tmp_path / "whole", workers=1)
    tokenmill.build(files, tokenizer_path, tmp_path / "lines", workers=1, separator="\n")
    assert documents(tmp_path / "whole") == expected(texts, reference)
    assert documents(tmp_path / "lines") == expected(["one", "two", "three"], reference)


def test_the_documents_table_says_where_each_document_came_from(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    path = write_jsonl(
        tmp_path / "a.jsonl", ["x", "", "yz"], id=["i", "j", "k"], lang=["en", 1, None]
    )
    report = tokenmill.build(
        path, tokenizer_path, tmp_path / "out", workers=1, id_field="id", keep=["lang"]
    )
    first, _, third = path.read_bytes().splitlines(keepends=True)
    second_row = len(first) + len(path.read_bytes().splitlines(keepends=True)[1])
    assert report.dataset.shards[0].documents().to_pylist() == [
        {"source": "a.jsonl", "position": 0, "id": "i", "subset": "train", "column.lang": "en"},
        {"source": "a.jsonl", "position": second_row, "id": "k", "subset": "train"}
        | {"column.lang": None},
    ]
    assert third


def test_character_spans_become_token_ranges(tmp_path: Path, tokenizer_path: Path) -> None:
    text = "def f(x):\n    return x + 1\n"
    path = write_jsonl(tmp_path / "a.jsonl", [text, "b"], mask=[[[0, 9]], []])
    report = tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1, no_loss="mask")
    rows = report.dataset.shards[0].documents().column("no_loss").to_pylist()
    ids = documents(tmp_path / "out")[0]
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    (span,) = rows[0]
    assert tokenizer.decode(ids[span["start"] : span["stop"]]).startswith("def f(x):")
    assert rows[1] == []


def test_ids_above_65535_need_int32(tmp_path: Path, tokenizer_path: Path) -> None:
    tokenizer = json.loads(tokenizer_path.read_text())
    tokenizer["model"]["vocab"]["unused"] = 66_000
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    path = write_jsonl(tmp_path / "a.jsonl", ["hello"])
    report = tokenmill.build(path, tmp_path / "tokenizer.json", tmp_path / "out", workers=1)
    assert report.dataset.manifest.token_dtype == "int32"
    assert documents(tmp_path / "out")[0][-1] == EOS


def test_bad_records_are_set_aside_with_place_and_reason(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "good"}\n{"text": null}\n{"tex\n\xff\n\n{"text": ""}\n')
    report = tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1, max_bad=0.9)
    totals = report.dataset.manifest.totals
    assert (totals.records, totals.documents, totals.empty) == (5, 1, 1)
    assert totals.rejected == {"invalid-json": 1, "invalid-utf8": 1, "null-text": 1}
    assert totals.blank_bytes == 1
    lines = (tmp_path / "out" / "rejected" / "00000000-000000.jsonl").read_text().splitlines()
    assert [(row["position"], row["reason"]) for row in map(json.loads, lines)] == [
        (17, "null-text"),
        (32, "invalid-json"),
        (38, "invalid-utf8"),
    ]


@pytest.mark.parametrize(
    ("mode", "ids"), [("text", "spelled out"), ("control", [EOS, EOS]), ("error", None)]
)
def test_special_tokens_in_text_follow_their_policy(
    mode: str, ids: object, tmp_path: Path, tokenizer_path: Path, reference: Reference
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["<|endoftext|>"])
    if ids is None:
        with pytest.raises(DataError, match="a special token in its text"):
            tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1, special_tokens=mode)
        return
    report = tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1, special_tokens=mode)
    wanted = ids if mode == "control" else [*reference("<|endoftext|>"), EOS]
    assert documents(tmp_path / "out") == [wanted]
    assert report.dataset.manifest.totals.special_strings == 1


def test_a_post_processor_adds_its_beginning_and_no_second_end(
    tmp_path: Path, tokenizer_path: Path, reference: Reference
) -> None:
    tokenizer = json.loads(tokenizer_path.read_text())
    bos = len(tokenizer["model"]["vocab"])
    tokenizer["added_tokens"].append({**tokenizer["added_tokens"][0], "id": bos, "content": "<s>"})
    special = {
        name: {"id": name, "ids": [number], "tokens": [name]}
        for name, number in (("<s>", bos), ("<|endoftext|>", EOS))
    }
    template = [
        {"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}},
    ]
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": template,
        "pair": template,
        "special_tokens": special,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    path = write_jsonl(tmp_path / "a.jsonl", ["hello"])
    tokenmill.build(path, tmp_path / "tokenizer.json", tmp_path / "out", workers=1)
    assert documents(tmp_path / "out") == [[bos, *reference("hello"), EOS]]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("limit", [{"max_documents": 321}, {"max_tokens": 10_000}])
def test_limits_stop_at_the_same_document_for_any_number_of_workers(
    limit: dict[str, int],
    workers: int,
    tmp_path: Path,
    tokenizer_path: Path,
    reference: Reference,
) -> None:
    paths = write_corpus(tmp_path / "data")
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=workers, **limit)
    everything = expected(texts_of(paths), reference)
    found = documents(tmp_path / "out")
    assert found == everything[: len(found)]
    if "max_documents" in limit:
        assert len(found) == 321
    else:
        tokens = sum(map(len, found))
        assert tokens <= 10_000 < tokens + len(everything[len(found)])
    tokenmill.verify(tmp_path / "out", against_sources=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_damage_behind_a_limit_is_not_part_of_the_dataset(
    workers: int, tmp_path: Path, tokenizer_path: Path, reference: Reference
) -> None:
    texts = random_texts(3000)
    plain = write_jsonl(tmp_path / "a.jsonl", texts)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(plain.read_bytes())[:-3000])
    tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=workers, max_documents=200)
    assert documents(tmp_path / "out") == expected(texts, reference)[:200]


@pytest.mark.soak
def test_a_document_of_17_million_characters_is_encoded_whole(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    text = "ab cd\n" * 2_900_000
    path = write_jsonl(tmp_path / "a.jsonl", ["first", text, "last"])
    report = tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=2)
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    shard = report.dataset.shards[0]
    assert tokenizer.decode(shard.document(1)[:-1].tolist()) == text


def test_damage_in_one_file_fails_its_unit_while_the_others_finish(
    tmp_path: Path, tokenizer_path: Path, reference: Reference
) -> None:
    paths = write_corpus(tmp_path / "data", per_file=800)
    broken = tmp_path / "data" / "part-1.jsonl.gz"
    broken.write_bytes(gzip.compress(paths[1].read_bytes())[:-2000])
    paths[1].unlink()
    with pytest.raises(DataError, match=r"(?s)damaged.*part-1.*--on-bad-file quarantine"):
        tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=2)
    receipts = [path.name for path in (tmp_path / "out" / "work" / "receipts").iterdir()]
    assert {name[:8] for name in receipts if not name.startswith("stream")} >= {
        "00000000",
        "00000002",
    }
    report = tokenmill.build(
        tmp_path / "data", tokenizer_path, tmp_path / "out", workers=2, on_bad_file="quarantine"
    )
    good = texts_of([paths[0], paths[2]])
    assert documents(tmp_path / "out") == expected(good, reference)
    notes = [source.quarantined for source in report.dataset.manifest.sources]
    assert [bool(note) for note in notes] == [False, True, False]


def test_many_damaged_streams_end_in_an_error_and_not_in_a_wait(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    plain = write_jsonl(tmp_path / "a.jsonl", random_texts(900))
    data = gzip.compress(plain.read_bytes())
    for number in range(8):
        (tmp_path / f"bad-{number}.jsonl.gz").write_bytes(data[: len(data) // 2 + number])
    with pytest.raises(DataError, match="8 input files are damaged"):
        tokenmill.build(sorted(tmp_path.glob("bad-*")), tokenizer_path, tmp_path / "out", workers=2)


def test_a_damaged_small_file_leaves_its_group_and_nothing_else(
    tmp_path: Path, tokenizer_path: Path, reference: Reference
) -> None:
    good = write_jsonl(tmp_path / "a.jsonl", ["one"]), write_jsonl(tmp_path / "c.jsonl", ["two"])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(good[0].read_bytes() * 50)[:-9])
    tokenmill.build(
        [good[0], tmp_path / "b.jsonl.gz", good[1]],
        tokenizer_path,
        tmp_path / "out",
        workers=1,
        on_bad_file="quarantine",
    )
    assert documents(tmp_path / "out") == expected(["one", "two"], reference)


def test_nothing_to_write_is_an_error(tmp_path: Path, tokenizer_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["", ""])
    with pytest.raises(DataError, match="nothing to write"):
        tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1)


def test_where_no_record_is_good_no_limit_is_advised(tokenizer_path: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": null}\n')
    with pytest.raises(DataError) as raised:
        tokenmill.build(path, tokenizer_path, tmp_path / "out", workers=1)
    check = "every record is bad, so check --text-field or --chat, and --format if given"
    assert raised.value.hint == f"look at {tmp_path / 'out'}/rejected/*.jsonl; {check}"

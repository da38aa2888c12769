"""Views and differences from the command line: what a user types, sees and gets back."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from corpora import tokenmill_here

import tokenmill
from conftest import write_jsonl


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Datasets `one` (a Z is a token, and so is the end) and `two`, and a file of ids."""
    folder = tmp_path_factory.mktemp("selected")
    write_jsonl(
        folder / "a.jsonl", ["Z", "ZZ", "ZZZ", "Z"], lang=["de", "en", "de", "de"],
        id=["a0", "a1", "a2", "a3"],
    )  # fmt: skip
    write_jsonl(folder / "b.jsonl", ["ZZ", "ZZZZ"], lang=["de", "en"], id=["b0", "b1"])
    (folder / "ids.txt").write_text("a2\nnobody\n\nb0\n")
    options = {"keep": ["lang"], "id_field": "id", "workers": 1}
    tokenmill.build(folder / "a.jsonl", tokenizer_path, folder / "one", **options)
    both = [folder / "a.jsonl", folder / "b.jsonl"]
    tokenmill.build(both, tokenizer_path, folder / "two", validation=0.5, **options)
    return folder


@pytest.fixture(autouse=True)
def inside(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)


def told(*arguments: object) -> list[str]:
    done = tokenmill_here(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_a_view_is_made_packed_and_read(corpus: Path) -> None:
    words = ("select", "one", "two", "--out", "view", "--without", "ids.txt", "--dedupe", "exact")
    lines = told(*words)
    view = tokenmill.open("view")
    assert lines == [
        f"        view  view (id {view.manifest.dataset_id})",
        "   documents  3 of 10",
        "      tokens  10 of 30",
        "    left out  3 documents with 11 tokens by: without the 3 ids in ids.txt",
        "    left out  4 documents with 9 tokens by: without exact duplicates",
        "     unknown  1 of 3 ids of ids.txt: nobody",
        "",
        "next: tokenmill pack view --sequence-length 4096",
    ]
    assert view.question == [
        "without the 3 ids in ids.txt", "without exact duplicates",
    ]  # fmt: skip
    tokenmill.pack(view, sequence_length=10, subset="all")
    (batch,) = view.batches(batch_size=1, shuffle="none", epochs=1)
    end = int(tokenmill.open("one").shards[0].document(0)[-1])
    edges = [-1, *np.flatnonzero(batch["input_ids"][0] == end).tolist()]
    assert sorted(np.diff(edges).tolist()) == [2, 3, 5]


def test_a_view_is_told_as_json(corpus: Path) -> None:
    pytest.importorskip("duckdb")
    words = ("--where", "lang = 'de' and tokens > 2", "--only", "ids.txt", "--json")
    (line,) = told("select", "two", "--out", "json-view", *words)
    found = json.loads(line)
    view = tokenmill.open("json-view")
    assert found == {
        "view": "json-view",
        "view_id": view.manifest.dataset_id,
        "documents": 2,
        "tokens": 7,
        "of_documents": 6,
        "of_tokens": 19,
        "left_out": [
            {"question": "where lang = 'de' and tokens > 2", "documents": 4, "tokens": 12},
            {"question": "only the 3 ids in ids.txt", "documents": 0, "tokens": 0},
        ],
        "unknown_ids": [{"file": "ids.txt", "ids": 3, "unknown": 1, "first": ["nobody"]}],
        "contained": [],
        "matches": None,
    }


def test_documents_that_share_words_with_a_benchmark_are_told(
    corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (corpus / "bench.jsonl").write_text('{"q": "zz!"}\n{"q": "z", "a": ["Q"]}\n{"n": 1}\n')
    digest = hashlib.sha256((corpus / "bench.jsonl").read_bytes()).hexdigest()[:12]
    words = ("--without-contained", "bench.jsonl", "--words", "1")
    lines = told("select", "one", "--out", "fair", *words)
    view = tokenmill.open("fair")
    run = "share 1 word in a row with one of 3 texts in bench.jsonl"
    question = f"without documents that {run} (SHA-256 {digest})"
    assert lines == [
        f"        view  fair (id {view.manifest.dataset_id})",
        "   documents  1 of 4",
        "      tokens  4 of 11",
        f"    left out  3 documents with 7 tokens by: {question}",
        "   contained  3 documents share 1 word in a row with 2 of 3 texts of bench.jsonl",
        "              2 documents with bench.jsonl:2",
        "              1 document with bench.jsonl:1",
        "   too short  1 of 3 texts of bench.jsonl cannot be found, with fewer than 1 word: "
        "bench.jsonl:3",
        "     matches  fair/matches.jsonl",
        "",
        "next: tokenmill pack fair --sequence-length 4096",
    ]
    (line,) = told("select", "one", "--out", "fair-json", *words, "--json")
    found = json.loads(line)
    assert found["matches"] == "fair-json/matches.jsonl"
    assert found["contained"] == [
        {
            "file": "bench.jsonl",
            "words": 1,
            "documents": 3,
            "texts": 3,
            "found": 2,
            "most": {"bench.jsonl:2": 2, "bench.jsonl:1": 1},
            "too_short": 1,
            "first_too_short": ["bench.jsonl:3"],
            "slow": False,
        }
    ]
    tokenmill.select("one", "fair-python", contains=Path("bench.jsonl"), words=1)
    assert caplog.messages == [
        "1 of 3 texts of bench.jsonl cannot be found, with fewer than 1 word: bench.jsonl:3"
    ]


def test_python_takes_the_same_options_and_warns_of_unknown_ids(
    corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = tokenmill.open("one")
    view = tokenmill.select(one, "python-view", only=Path("ids.txt"), sample="1k", seed=3)
    assert repr(view).startswith("<View 'python-view': 1 document")
    assert view.question == ["only the 3 ids in ids.txt", "a sample of 1,000 tokens with seed 3"]
    assert caplog.messages == ["no document has 2 of 3 ids of ids.txt: nobody, b0"]
    merged = tokenmill.select(["one", view], "merged")
    assert merged.question == [*view.question, "all documents"]
    assert (merged.num_documents, len(merged.document_numbers)) == (5, 8)


def test_a_sample_must_be_above_zero_and_a_view_needs_a_name(corpus: Path) -> None:
    done = tokenmill_here("select", "one", "--out", "x", "--sample", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == (
        "tokenmill: --sample: got '0'; must be a number, above 0 and at most 1000000000000000.0, "
        "or none, e.g. 10M"
    )
    done = tokenmill_here("select", "one")
    assert done.stderr.splitlines()[0] == "tokenmill: --out: is missing"


def test_a_difference_lists_sources_sizes_and_options() -> None:
    done = tokenmill_here("diff", "one", "two")
    ids = [tokenmill.open(name).manifest.dataset_id for name in ("one", "two")]
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.splitlines() == [
        "   documents  4 and 6 (+2)",
        "      tokens  11 and 19 (+8)",
        "       added  1 source: b.jsonl",
        "      option  read.validation: 0.0 and 0.5",
        f"         ids  {ids[0]} and {ids[1]}",
    ]
    assert told("diff", "two", "two") == [
        f"       equal  both are dataset {ids[1]}",
        "   documents  6 in both",
        "      tokens  19 in both",
    ]


def test_a_view_differs_from_its_dataset_by_what_it_leaves_out() -> None:
    told("select", "two", "--out", "diff-view", "--without", "ids.txt")
    done = tokenmill_here("diff", "two", "diff-view", "--json")
    ids = [tokenmill.open(name).manifest.dataset_id for name in ("two", "diff-view")]
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "equal": False,
        "ids": ids,
        "documents": [6, 4],
        "tokens": [19, 12],
        "added": [],
        "gone": [],
        "changed": [
            {"name": "a.jsonl", "documents": [4, 3], "tokens": [11, 7]},
            {"name": "b.jsonl", "documents": [2, 1], "tokens": [8, 5]},
        ],
        "tokenizer": {},
        "policies": {},
        "questions": [[], ["without the 3 ids in ids.txt"]],
    }

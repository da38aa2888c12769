"""Builds with Python tokenizers: in this process and in workers, and what can go wrong in them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import tokenizers
from corpora import command, contents, documents, texts_of, write_corpus
from python_tokenizers import (
    ByteTokenizer,
    EncodingOnly,
    EndingBytes,
    FailingBytes,
    HoardingBytes,
    RandomBytes,
    TiringBytes,
    UnsendableBytes,
)

import tokenmill
from tokenmill.core.errors import (
    DataError,
    EngineError,
    InputChangedError,
    UserError,
)
from tokenmill.read import units
from tokenmill.reports.contents import stored_run
from tokenmill.reports.sequence import view_sequence
from tokenmill.run.machine import Resources

HERE = Path(__file__).parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(HERE)}
NAME = "python:python_tokenizers:make_bytes"
MILLION = 1_000_000
WHOLE_EXAMS = True
"""Some tokenizers here count their calls."""


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 64 << 10)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Five files of about 100 kB, which are a unit or two each."""
    return write_corpus(tmp_path_factory.mktemp("corpus"), num_files=5, per_file=500)


@pytest.fixture(scope="module")
def dataset(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The corpus, encoded by name in one process."""
    out = tmp_path_factory.mktemp("built") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 64 << 10)
        tokenmill.build(corpus, NAME, out, workers=1)
    return out


def marked(corpus: list[Path], folder: Path, word: str, files: slice) -> list[Path]:
    """The corpus, with one more document after 300 of some files: not among the first records."""
    folder.mkdir()
    paths = []
    for path in corpus:
        paths.append(folder / path.name)
        paths[-1].write_bytes(path.read_bytes())
    for path in paths[files]:
        lines = path.read_text().splitlines(keepends=True)
        lines.insert(300, json.dumps({"id": "marked", "text": word}) + "\n")
        path.write_text("".join(lines))
    return paths


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=120, env=ENVIRONMENT
    )


# The same bytes, whoever encodes.


def test_documents_are_what_the_object_says(dataset: Path, corpus: list[Path]) -> None:
    expected = [[*text.encode(), 256] for text in texts_of(corpus) if text]
    assert documents(dataset) == expected
    manifest = tokenmill.open(dataset).manifest
    entry = manifest.tokenizer
    assert (entry.kind, entry.reference, entry.largest_id) == ("python", "python", 256)
    assert [file.name for file in entry.files] == ["tokenizer/tokenizer-python.json"]
    assert manifest.token_dtype == "uint16"
    found = stored_run(tokenmill.open(dataset))
    assert (found.recipe["tokenizer"], found.engine) == (NAME, "reference")
    assert found.audited_documents >= len(manifest.shards) > 1


def test_a_tokenizer_that_ends_texts_itself_adds_no_second_end(
    dataset: Path, corpus: list[Path], tmp_path: Path
) -> None:
    tokenmill.build(corpus, EndingBytes(), tmp_path / "out", workers=1)
    ours, theirs = tokenmill.open(tmp_path / "out"), tokenmill.open(dataset)
    assert [path.read_bytes() for path in sorted(ours.folder.glob("tokens/*.bin"))] == [
        path.read_bytes() for path in sorted(theirs.folder.glob("tokens/*.bin"))
    ]
    tokenmill.verify(tmp_path / "out", tokenizer=EndingBytes(), against_sources=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_object_gives_the_same_dataset_as_its_name(
    dataset: Path, corpus: list[Path], tmp_path: Path, workers: int
) -> None:
    report = tokenmill.build(corpus, ByteTokenizer(), tmp_path / "out", workers=workers)
    assert contents(tmp_path / "out") == contents(dataset)
    assert report.run.recipe["tokenizer"] == "<object of python_tokenizers.ByteTokenizer>"
    assert report.run.attempts[0].recycled_workers == 0


def test_the_command_line_imports_the_name_in_every_worker(
    dataset: Path, corpus: list[Path], tmp_path: Path
) -> None:
    done = run("build", *corpus, "--tokenizer", NAME, "--out", tmp_path / "out", "--workers", 2)
    assert done.returncode == 0, done.stderr
    assert contents(tmp_path / "out") == contents(dataset)


def test_a_build_is_resumed_with_the_same_tokenizer_and_with_no_other(
    dataset: Path, corpus: list[Path], tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text("no JSON\n")
    paths, out = [*corpus, tmp_path / "bad.jsonl"], tmp_path / "out"
    with pytest.raises(DataError, match="records are bad"):
        tokenmill.build(paths, NAME, out, workers=1)
    with pytest.raises(InputChangedError, match="tokenizer"):
        tokenmill.build(paths, EndingBytes(), out, workers=1, max_bad=0.5)
    report = tokenmill.build(paths, NAME, out, workers=1, max_bad=0.5)
    assert report.reused is not None
    assert report.reused.units > 1
    assert documents(out) == documents(dataset)


def test_slow_tokenizers_of_transformers_encode_as_they_say(
    corpus: list[Path], tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.ByT5Tokenizer()
    tokenmill.build(corpus[:1], tokenizer, tmp_path / "object", workers=1)
    texts = [text for text in texts_of(corpus[:1]) if text]
    assert documents(tmp_path / "object") == [tokenizer.encode(text) for text in texts]
    tokenmill.verify(tmp_path / "object", tokenizer=tokenizer, against_sources=True)
    tokenizer.save_pretrained(tmp_path / "folder")
    tokenmill.build(corpus[:1], tmp_path / "folder", tmp_path / "by-folder", workers=1)
    assert contents(tmp_path / "by-folder") == contents(tmp_path / "object")


def test_a_fast_object_gives_the_same_dataset_as_its_file(
    corpus: list[Path], tmp_path: Path, tokenizer_path: Path
) -> None:
    tokenmill.build(corpus[:1], tokenizer_path, tmp_path / "file", workers=1)
    ours = tokenizers.Tokenizer.from_file(str(tokenizer_path))
    tokenmill.build(corpus[:1], ours, tmp_path / "object", workers=1)
    assert contents(tmp_path / "object") == contents(tmp_path / "file")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer_path), eos_token="<|endoftext|>"
    )
    report = tokenmill.build(corpus[:1], theirs, tmp_path / "transformers", workers=1)
    assert documents(tmp_path / "transformers") == documents(tmp_path / "file")
    assert report.run.engine != "reference"


# What is refused.


@pytest.mark.parametrize("workers", [1, 2])
def test_a_random_tokenizer_is_refused(corpus: list[Path], tmp_path: Path, workers: int) -> None:
    with pytest.raises(EngineError) as caught:
        tokenmill.build(corpus, RandomBytes(), tmp_path / "out", workers=workers)
    assert caught.value.what == "the tokenizer gives different ids for the same text"
    assert "depend only on the text" in caught.value.hint
    assert not list((tmp_path / "out" / "work" / "receipts").glob("*.json"))


@pytest.mark.parametrize(("workers", "calls"), [(1, 8_800), (2, 5_000)])
def test_a_tokenizer_that_tires_is_found_by_the_audit(
    corpus: list[Path], tmp_path: Path, workers: int, calls: int
) -> None:
    # Some 3,800 calls before the object is copied or sent and 3,200 to calibrate the copy; the
    # corpus has 2,500 documents.
    with pytest.raises(EngineError, match="gives different ids for the same text"):
        tokenmill.build(corpus, TiringBytes(calls), tmp_path / "out", workers=workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_is_told_with_the_place_of_its_document(
    corpus: list[Path], tmp_path: Path, workers: int
) -> None:
    paths = marked(corpus, tmp_path / "data", "unspeakable", slice(3, 4))
    with pytest.raises(EngineError) as caught:
        tokenmill.build(paths, FailingBytes(), tmp_path / "out", workers=workers)
    assert caught.value.what == "the tokenizer failed on a document"
    position = paths[3].read_bytes().index(b'{"id": "marked"')
    assert caught.value.where == f"part-3.jsonl, position {position}"
    assert caught.value.why.startswith("ValueError: there are no words for it (")
    assert caught.value.why.endswith("for text 'unspeakable'")


def test_an_object_that_cannot_be_sent_runs_in_this_process_alone(
    corpus: list[Path], dataset: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="cannot send the tokenizer to worker processes"):
        tokenmill.build(corpus, UnsendableBytes(), tmp_path / "out", workers=2)
    assert not (tmp_path / "out").exists()
    tokenmill.build(corpus, UnsendableBytes(), tmp_path / "out", workers=1)
    assert documents(tmp_path / "out") == documents(dataset)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"engine": "fastokens"}, "fastokens is not exact for this tokenizer"),
        ({"no_loss": "spans"}, "a Python tokenizer does not report which characters"),
        ({"encoding": "gpt2"}, "--encoding works only with tiktoken rank files"),
        ({"special_tokens": "control"}, "the tokenizer reads '<end>' in texts as ordinary text"),
    ],
)
def test_what_such_a_tokenizer_cannot_do_is_refused_before_work_starts(
    corpus: list[Path], tmp_path: Path, options: dict[str, str], what: str
) -> None:
    with pytest.raises(UserError) as caught:
        tokenmill.build(corpus, ByteTokenizer(), tmp_path / "out", workers=1, **options)
    assert caught.value.what.startswith(what)
    assert not (tmp_path / "out").exists()


# Memory: a worker may grow by 150 MB, and by 300 MB within a unit.


@pytest.fixture
def may_grow_by_150_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resources, "growth_bytes", 150 * MILLION)


@pytest.mark.usefixtures("may_grow_by_150_megabytes")
@pytest.mark.parametrize(
    ("files", "megabytes", "once", "recycled"),
    [(slice(0, 3), 180, False, (2, 3)), (slice(4, 5), 400, True, (1,))],
    ids=["a worker that is full after a unit", "a unit that grows too far"],
)
def test_what_keeps_memory_goes_on_in_a_fresh_worker(
    files: slice, megabytes: int, once: bool, recycled: tuple[int, ...], corpus: list[Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    paths = marked(corpus, tmp_path / "data", "hoard", files)
    tokenizer = HoardingBytes(megabytes * MILLION, tmp_path / "hoarded" if once else None)
    report = tokenmill.build(paths, tokenizer, tmp_path / "out", workers=2)
    assert report.run.attempts[0].recycled_workers in recycled  # none for the last units
    expected = [[*text.encode(), 256] for text in texts_of(paths) if text]
    assert documents(tmp_path / "out") == expected


@pytest.mark.usefixtures("may_grow_by_150_megabytes")
def test_a_unit_that_grows_too_far_twice_ends_the_build(corpus: list[Path], tmp_path: Path) -> None:
    paths = marked(corpus, tmp_path / "data", "hoard", slice(4, 5))
    with pytest.raises(EngineError) as caught:
        tokenmill.build(paths, HoardingBytes(400 * MILLION), tmp_path / "out", workers=2)
    assert caught.value.what.startswith("a worker exceeded its share of memory twice on unit")
    assert caught.value.where.startswith("part-4.jsonl, after position ")
    assert "its share allows 300,000,000 per unit" in caught.value.why
    assert "--memory" in caught.value.hint
    assert "--workers" in caught.value.hint


# A dataset on disk holds a description, and no code.


def test_opening_a_dataset_imports_no_module_of_its_tokenizer(
    dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "python_tokenizers.py").write_text(
        f"from pathlib import Path\nPath({str(tmp_path / 'imported')!r}).touch()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    answers = []
    for arguments in (
        ["verify", dataset],
        ["inspect", dataset],
        ["inspect", dataset, "--document", 0],
    ):
        done = subprocess.run(
            command(*arguments, small=False), capture_output=True, text=True, env=environment
        )
        answers.append((done.returncode, done.stdout + done.stderr))
    assert [code for code, _ in answers] == [0, 0, 2]
    assert "not decoded (give --tokenizer" in answers[0][1]
    assert "document 0\n     begins  <id " in answers[1][1]
    assert "--tokenizer python:module:name" in answers[2][1]
    assert not (tmp_path / "imported").exists()


def test_a_dataset_is_decoded_with_the_tokenizer_that_is_handed_over(
    dataset: Path, corpus: list[Path]
) -> None:
    done = run("verify", dataset, "--tokenizer", NAME, "--against-sources")
    assert done.returncode == 0, done.stderr
    assert "compared with their sources" in done.stdout
    assert "not decoded" not in done.stdout
    text = next(text for text in texts_of(corpus) if text)
    shown = run("inspect", dataset, "--tokenizer", NAME, "--document", 0)
    assert text in shown.stdout
    edges = run("inspect", dataset, "--tokenizer", NAME)
    assert f"document 0\n     begins  {text[:10]}" in edges.stdout
    assert tokenmill.view_document(dataset, 0, ByteTokenizer()).pieces[0].text == text
    assert tokenmill.verify(dataset).decoded_documents == 0
    assert tokenmill.verify(dataset, tokenizer=ByteTokenizer()).decoded_documents > 0


def test_a_sequence_is_decoded_with_the_tokenizer_that_is_handed_over(
    dataset: Path, corpus: list[Path], tmp_path: Path
) -> None:
    options = {"sequence_length": 1024, "packing": "order-preserving"}
    tokenmill.pack(dataset, folder=tmp_path / "plan", **options)
    text = next(text for text in texts_of(corpus) if text)
    opened = tokenmill.open(dataset)
    plan = tokenmill.open_plan(opened, tmp_path / "plan")
    assert view_sequence(opened, plan, 0, ByteTokenizer()).segments[0].text == f"{text}<end>"
    with pytest.raises(UserError, match="stores only a description of it"):
        view_sequence(opened, plan, 0)


def test_a_tokenizer_without_decode_is_enough_to_compare_with_sources(
    corpus: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    tokenmill.build(corpus[:1], EncodingOnly(), out, eos="256", workers=1)
    result = tokenmill.verify(out, tokenizer=EncodingOnly(), against_sources=True)
    assert (result.decoded_documents, result.compared_documents) == (0, result.documents)
    assert tokenmill.open(out).manifest.token_dtype == "int32"


def test_another_tokenizer_is_refused_with_what_differs(dataset: Path) -> None:
    with pytest.raises(UserError) as caught:
        tokenmill.verify(dataset, tokenizer=RandomBytes())
    assert caught.value.what == "this is not the tokenizer that encoded the dataset"
    assert "class: was python_tokenizers.ByteTokenizer, is now" in caught.value.why
    with pytest.raises(UserError, match="stores only a description of it"):
        tokenmill.verify(dataset, against_sources=True)


def test_a_dataset_that_carries_its_tokenizer_takes_no_other(
    corpus: list[Path], tmp_path: Path, tokenizer_path: Path
) -> None:
    tokenmill.build(corpus[:1], tokenizer_path, tmp_path / "out", workers=1)
    with pytest.raises(UserError, match="the dataset already contains its tokenizer"):
        tokenmill.verify(tmp_path / "out", tokenizer=tokenizer_path)

"""Words of a corpus, counted: the same bytes however the work was done, and every book balances."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import command, contents, random_texts, tokenmill_here, wait_for
from toy_executor import LastFirst

import tokenmill
from tokenmill.core.errors import DataError, InputChangedError, OutputConflictError, UserError
from tokenmill.encode.splitters import LIBRARY, Splitter, load_splitter
from tokenmill.encode.words.splits import Split, named_split
from tokenmill.read import units
from tokenmill.run.machine import Resources
from tokenmill.run.pipeline import CountEvents, count
from tokenmill.run.recipe.checks import make_count_recipe
from tokenmill.run.tasks.count import group_names
from tokenmill.run.units import count as counted_units
from tokenmill.run.units import count as unit_count
from tokenmill.store.counts.merging import LeftOut

zstd = pytest.importorskip("backports.zstd")
NUM_DOCUMENTS = 2000
LANGUAGES = ("en", "de", None)


def write_lines(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_texts(path: Path, *texts: str) -> Path:
    return write_lines(path, [{"text": text} for text in texts])


def counts_of(folder: Path) -> dict[str, dict[bytes, int]]:
    """Every word of every group."""
    groups = tokenmill.open_counts(folder).groups
    return {name: words.to_dict() for name, words in groups.items()}


def recipe(inputs: Path, out: Path, **options: object) -> Any:
    return make_count_recipe({"inputs": [inputs], "out": out, "split": "whitespace", **options})


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same documents three times, about 350 kB each: as lines, as a stream, and in Parquet."""
    folder = tmp_path_factory.mktemp("corpus")
    rows = [
        {"text": text, "language": LANGUAGES[index % 3]}
        for index, text in enumerate(random_texts(NUM_DOCUMENTS, words=60))
    ]
    plain = write_lines(folder / "a.jsonl", rows)
    (folder / "b.jsonl.zst").write_bytes(zstd.compress(plain.read_bytes()))
    pq.write_table(pa.Table.from_pylist(rows), folder / "c.parquet", row_group_size=500)
    return folder


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 64 << 10)
    monkeypatch.setattr(units, "PIECE_BYTES", 4 << 10)


def test_words_are_what_the_split_leaves_and_each_is_counted(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "a.jsonl", "a b a", "", "a b")
    report = tokenmill.count_words(source, tmp_path / "out", split="gpt2", workers=1)
    assert counts_of(tmp_path / "out") == {"": {b" a": 1, b" b": 2, b"a": 2}}
    totals = report.counts.manifest.totals
    assert (totals.records, totals.documents, totals.empty) == (3, 2, 1)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "00000.counts.npy", "00000.offsets.npy", "00000.words.npy", "counts.json", "run.json",
    ]  # fmt: skip


def test_groups_are_the_inputs_by_the_last_part_of_their_names(tmp_path: Path) -> None:
    for name in ("web", "code"):
        (tmp_path / name).mkdir()
    write_texts(tmp_path / "web" / "0.jsonl", "a a")
    write_texts(tmp_path / "web" / "1.jsonl", "a b")
    write_texts(tmp_path / "code" / "0.jsonl", "b")
    inputs = [tmp_path / "web", tmp_path / "code"]
    tokenmill.count_words(inputs, tmp_path / "out", split="whitespace", by="input", workers=1)
    assert counts_of(tmp_path / "out") == {"code": {b"b": 1}, "web": {b"a": 3, b"b": 1}}


def test_inputs_whose_names_end_alike_are_called_by_their_whole_names() -> None:
    assert group_names(["/data/en/", "de.jsonl"]) == ["en", "de.jsonl"]
    assert group_names(["a/x", "b/x", "c/y"]) == ["a/x", "b/x", "y"]


@pytest.mark.parametrize("by", ["source", "source?"])
def test_groups_are_the_values_of_a_field_and_a_missing_one_is_a_group(
    tmp_path: Path, by: str
) -> None:
    """The field may be named as what the reader adds itself."""
    rows = [
        {"text": "a", "source": "en"}, {"text": "b", "source": "de"}, {"text": "c"},
        {"text": "a", "source": "en"}, {"text": "d", "source": None}, {"text": "e", "source": 7},
    ]  # fmt: skip
    source = write_lines(tmp_path / "a.jsonl", rows)
    tokenmill.count_words(source, tmp_path / "out", split="whitespace", by=by, workers=1)
    assert counts_of(tmp_path / "out") == {
        "(none)": {b"c": 1, b"d": 1}, "7": {b"e": 1}, "de": {b"b": 1}, "en": {b"a": 2},
    }  # fmt: skip


def test_rare_words_are_left_out_and_counted(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "a.jsonl", "a a a bb bb c")
    report = tokenmill.count_words(
        source, tmp_path / "out", split="whitespace", min_count=3, workers=1
    )
    assert counts_of(tmp_path / "out") == {"": {b"a": 3}}
    assert report.counts.left_out == LeftOut(2, 3, 5)


@pytest.mark.usefixtures("small_units")
def test_one_worker_and_two_give_the_same_bytes_for_every_format(
    corpus: Path, tmp_path: Path
) -> None:
    found = []
    for workers in (1, 2):
        out = tmp_path / str(workers)
        report = tokenmill.count_words(corpus, out, split="gpt2", by="language", workers=workers)
        found.append(contents(out))
        assert report.run
        assert report.run.audited_documents >= 12
    assert found[0] == found[1]
    expected: dict[str, Counter[bytes]] = {"(none)": Counter(), "de": Counter(), "en": Counter()}
    library = load_splitter(named_split("gpt2"), LIBRARY, 0)
    for index, text in enumerate(random_texts(NUM_DOCUMENTS, words=60)):
        words = library.split([text])
        edges, data = words.edges.tolist(), words.data.tobytes()
        of_text = Counter(data[i:j] for i, j in itertools.pairwise(edges))
        expected[LANGUAGES[index % 3] or "(none)"].update(of_text)
    thrice = {name: {word: 3 * n for word, n in of.items()} for name, of in expected.items()}
    assert counts_of(tmp_path / "1") == thrice


@pytest.mark.usefixtures("small_units")
def test_tables_that_are_full_become_several_runs_and_nothing_changes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = corpus / "a.jsonl"
    tokenmill.count_words(source, tmp_path / "once", split="gpt2", workers=1)
    receipts: list[list[str]] = []
    finish = unit_count.CountedUnit.close

    def close(unit: unit_count.CountedUnit) -> list[Any]:
        files = finish(unit)
        receipts.append([file.name for file in files])
        return files

    monkeypatch.setattr(unit_count.CountedUnit, "close", close)
    monkeypatch.setattr(Resources, "table_bytes", 0)
    monkeypatch.setattr(Resources, "batch_bytes", 16 << 10)
    tokenmill.count_words(source, tmp_path / "often", split="gpt2", workers=1)
    assert contents(tmp_path / "often") == contents(tmp_path / "once")
    assert max(map(len, receipts)) > 3


@pytest.mark.usefixtures("small_units")
def test_units_that_die_run_again_document_by_document(corpus: Path, tmp_path: Path) -> None:
    source = corpus / "a.jsonl"
    for out, deaths in (("clean", {}), ("again", {"00000000-000001": 1, "00000000-000003": 1})):
        executor = LastFirst(deaths)
        count(recipe(source, tmp_path / out, by="language"), executor=executor)
        assert executor.careful == sorted(deaths, reverse=True)
    assert contents(tmp_path / "again") == contents(tmp_path / "clean")


@pytest.mark.timeout(300)
def test_a_killed_count_resumes_and_ends_with_the_same_bytes(corpus: Path, tmp_path: Path) -> None:
    inputs = [corpus / "a.jsonl", corpus / "c.parquet"]

    arguments = ["tokenizer", "count", *inputs, "--split", "gpt2", "--by", "input", "--out"]
    out, clean = tmp_path / "killed", tmp_path / "clean"
    pipe = subprocess.PIPE
    killed = subprocess.Popen(command(*arguments, out, "--workers", 2), stdout=pipe, stderr=pipe)
    wait_for(lambda: [*out.glob("work/receipts/0*.json")], 60)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    resumed = tokenmill_here(*arguments, out, "--workers", 1)
    assert resumed.returncode == 0, resumed.stderr
    assert "reused" in resumed.stdout or "nothing to do" in resumed.stdout
    again = tokenmill_here(*arguments, clean, "--workers", 1)
    assert again.returncode == 0, again.stderr
    assert contents(out) == contents(clean)


def test_a_count_that_was_begun_otherwise_is_not_resumed(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "a.jsonl", "a b")
    with source.open("a") as file:
        file.write("no JSON\n")
    with pytest.raises(DataError, match="1 of 2 records are bad"):
        tokenmill.count_words(source, tmp_path / "out", split="whitespace", workers=1)
    with pytest.raises(InputChangedError, match="cannot resume the count") as caught:
        tokenmill.count_words(source, tmp_path / "out", split="gpt2", workers=1)
    assert "split.name: was 'whitespace', is 'gpt2'" in caught.value.why
    tokenmill.count_words(source, tmp_path / "out", split="whitespace", workers=1, max_bad="50%")
    line = json.loads((tmp_path / "out" / "rejected" / "00000000-000000.jsonl").read_text())
    assert (line["source"], line["record"]) == ("a.jsonl", "no JSON\n")


def test_only_counts_are_replaced(tmp_path: Path) -> None:
    source = write_texts(tmp_path / "a.jsonl", "a b")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").touch()
    with pytest.raises(OutputConflictError, match="holds no word counts"):
        tokenmill.count_words(source, tmp_path / "out", split="gpt2", overwrite=True)


def test_a_damaged_file_is_left_out_if_that_is_asked_for(tmp_path: Path) -> None:
    sound = write_texts(tmp_path / "a.jsonl", "a b")
    damaged = tmp_path / "b.jsonl.zst"
    damaged.write_bytes(zstd.compress(sound.read_bytes() * 99)[:-9])
    options: dict[str, Any] = {"split": "whitespace", "workers": 1}
    with pytest.raises(DataError):
        tokenmill.count_words([sound, damaged], tmp_path / "out", **options)
    report = tokenmill.count_words(
        [sound, damaged], tmp_path / "out", on_bad_file="quarantine", **options
    )
    assert counts_of(tmp_path / "out") == {"": {b"a": 1, b"b": 1}}
    assert [bool(source.quarantined) for source in report.counts.manifest.sources] == [False, True]


@pytest.mark.usefixtures("small_units")
def test_a_limit_on_documents_falls_at_the_same_place_for_any_executor(
    corpus: Path, tmp_path: Path
) -> None:
    source = corpus / "a.jsonl"
    limited = {"read": {"max_documents": 1000}}
    tokenmill.count_words(source, tmp_path / "1", split="whitespace", max_documents=1000, workers=1)
    count(recipe(source, tmp_path / "2", **limited), executor=LastFirst())
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    texts = [text for text in random_texts(NUM_DOCUMENTS, words=60) if text][:1000]
    write_texts(tmp_path / "head.jsonl", *texts)
    tokenmill.count_words(tmp_path / "head.jsonl", tmp_path / "3", split="whitespace", workers=1)
    assert counts_of(tmp_path / "1") == counts_of(tmp_path / "3")


class _Wrong:
    """The library, but for one word."""

    name = "memo"

    def __init__(self, split: Split) -> None:
        self._library = load_splitter(split, LIBRARY, 0)
        self.version = self._library.version

    def encode(self, texts: Sequence[str]) -> Any:
        return self._library.encode([text.replace("über", "uber") for text in texts])


def test_a_splitter_that_differs_from_the_library_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(split: Split, name: str, cache_bytes: int) -> Splitter:
        found: Any = _Wrong(split) if name == "memo" else load_splitter(split, name, cache_bytes)
        return found

    monkeypatch.setattr(unit_count, "load_splitter", load)
    monkeypatch.setattr("tokenmill.run.tasks.count.word_splitters", lambda _: ("memo", LIBRARY))
    source = write_texts(tmp_path / "a.jsonl", "a über a")
    told: list[tuple[str, str]] = []
    events = CountEvents(on_engine=lambda name, remark: told.append((name, remark[:6])))
    tokenmill.count_words(source, tmp_path / "out", split="whitespace", workers=1, events=events)
    assert told == [("memo", ""), ("memo", "vetoed"), ("library", "")]
    assert counts_of(tmp_path / "out") == {"": {b"a": 2, "über".encode(): 1}}


def test_a_field_with_a_value_for_each_document_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_count, "MAX_GROUPS", 3)
    monkeypatch.setattr(counted_units, "MAX_GROUPS", 3)
    rows = [{"text": "a", "url": f"http://{number}"} for number in range(5)]
    source = write_lines(tmp_path / "a.jsonl", rows)
    with pytest.raises(DataError, match="there are more than 3 groups") as caught:
        tokenmill.count_words(source, tmp_path / "out", split="gpt2", by="url", workers=1)
    assert caught.value.why == "'url' has too many values"


def test_a_value_that_is_a_text_of_its_own_is_refused(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", [{"text": "a", "body": "x" * 1001}])
    with pytest.raises(DataError, match="'body' is too long to be a group name") as caught:
        tokenmill.count_words(source, tmp_path / "out", split="gpt2", by="body", workers=1)
    assert caught.value.where == "a.jsonl, position 0"


def test_all_wrong_options_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the count has 3 problems") as caught:
        make_count_recipe(
            {"inputs": ["a"], "out": "b", "min_count": 0, "read": {"validation": 0.1}}
        )
    assert sorted(line.strip() for line in caught.value.why.splitlines()) == [
        "min_count: got 0; must be a whole number, at least 1",
        "read.validation: does not apply to word counts",
        "split: is missing",
    ]


def test_the_split_may_be_that_of_a_tokenizer(tmp_path: Path, tokenizer_path: Path) -> None:
    source = write_texts(tmp_path / "a.jsonl", "a b")
    report = tokenmill.count_words(source, tmp_path / "out", split=str(tokenizer_path), workers=1)
    steps = json.loads(tokenizer_path.read_text())["pre_tokenizer"]
    assert report.counts.split.pre_tokenizer == steps


def test_the_sources_of_a_dataset_are_counted_as_it_read_them(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    rows = [{"body": text} for text in ("a b", "", "c", "d")]
    source = write_lines(tmp_path / "a.jsonl", rows)
    for name, limits in (("all", {}), ("two", {"max_tokens": 6})):
        dataset = tokenmill.build(
            source, tokenizer_path, tmp_path / name, text_field="body", workers=1, **limits
        ).dataset
        tokenmill.count_words(tmp_path / name, tmp_path / f"{name}-counts", split="gpt2", workers=1)
        found = tokenmill.open_counts(tmp_path / f"{name}-counts").manifest.totals.documents
        assert found == dataset.manifest.totals.documents
    assert counts_of(tmp_path / "all-counts") == {"": {b" b": 1, b"a": 1, b"c": 1, b"d": 1}}
    assert counts_of(tmp_path / "two-counts") == {"": {b" b": 1, b"a": 1, b"c": 1}}
    with pytest.raises(UserError, match="a dataset cannot be combined"):
        tokenmill.count_words([tmp_path / "all", source], tmp_path / "out", split="gpt2")


@pytest.fixture
def two_counts(tmp_path: Path) -> list[Path]:
    folders = []
    for name, text in (("x", "a b"), ("y", "b c")):
        source = write_texts(tmp_path / f"{name}.jsonl", text)
        tokenmill.count_words(source, tmp_path / name, split="whitespace", workers=1)
        folders.append(tmp_path / name)
    return folders


def test_counts_are_added_up(two_counts: list[Path], tmp_path: Path) -> None:
    report = tokenmill.count_words(two_counts, tmp_path / "sum")
    assert counts_of(tmp_path / "sum") == {"": {b"a": 1, b"b": 2, b"c": 1}}
    assert report.counts.manifest.totals.documents == 2
    tokenmill.count_words(two_counts, tmp_path / "sum", min_count=2, overwrite=True)
    assert counts_of(tmp_path / "sum") == {"": {b"b": 2}}
    assert sorted(path.name for path in (tmp_path / "sum").iterdir())[-1] == "counts.json"


def test_counts_that_cannot_be_added_up_are_refused(two_counts: list[Path], tmp_path: Path) -> None:
    source = write_texts(tmp_path / "z.jsonl", "a b")
    tokenmill.count_words(source, tmp_path / "z", split="gpt2", workers=1)
    refused: list[tuple[list[Path], dict[str, Any], str]] = [
        ([*two_counts, tmp_path / "z"], {}, "cannot add up counts of different splits"),
        ([*two_counts, source], {}, "folders of counts and texts cannot be combined"),
        (two_counts, {"split": "gpt2"}, "the words were counted with another split"),
        (two_counts, {"by": "input"}, "counts cannot be regrouped"),
        ([two_counts[0]] * 2, {}, "an input is named twice"),
    ]
    for inputs, options, what in refused:
        with pytest.raises(UserError, match=what):
            tokenmill.count_words(inputs, tmp_path / "sum", **options)
    with pytest.raises(OutputConflictError, match="holds word counts"):
        tokenmill.count_words([two_counts[0]], two_counts[1])
    assert not (tmp_path / "sum" / "counts.json").exists()

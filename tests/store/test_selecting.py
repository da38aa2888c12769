"""Chosen documents are those that a plain model of the questions chooses."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import random_trials
from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.records import DocumentBatch
from tokenmill.store.dataset import Dataset
from tokenmill.store.documents_table import DocumentRows
from tokenmill.store.manifest import (
    Counts,
    ExtentEntry,
    Manifest,
    ShardEntry,
    SourceEntry,
    TokenizerEntry,
    dataset_id,
    write_manifest,
)
from tokenmill.store.selecting import duplicates
from tokenmill.store.selecting.options import SelectOptions
from tokenmill.store.selecting.select import Selected, select
from tokenmill.store.shard import ShardLayout, ShardWriter

UINT16 = np.dtype("<u2")
HOSTILE_IDS = [
    "a",
    "A",
    " a",
    "a ",
    "a'; DROP TABLE documents --",
    "ü",
    "u\u0308",
    "\u2028",
    "-" * 300,
]


@dataclass(frozen=True)
class Doc:
    """A document of the model."""

    source: int
    name: str | None
    lang: str | None
    ids: tuple[int, ...]


def write_dataset(folder: Path, shards: Sequence[Sequence[Doc]], **policies: Any) -> Dataset:
    """A dataset of these documents, from sources a, b and c."""
    (folder / "tokens").mkdir(parents=True)
    entries = [_write_shard(folder, f"{n:05d}", shard) for n, shard in enumerate(shards)]
    all_docs = [doc for shard in shards for doc in shard]
    sources = []
    for number, name in enumerate("abc"):
        own = [doc for doc in all_docs if doc.source == number]
        counts = Counts(
            records=len(own), documents=len(own), tokens=sum(len(doc.ids) for doc in own)
        )
        sources.append(
            SourceEntry(
                name=name, format="jsonl", compression="none", bytes=0, xxh3_128="", counts=counts
            )
        )
    totals = Counts()
    for source in sources:
        totals.add(source.counts)
    tokenizer = TokenizerEntry(
        kind="huggingface", encoding="", sha256=policies.pop("tokenizer", ""), reference="",
        largest_id=9, prefix_ids=[], eos_id=0, pad_id=None, files=[],
    )  # fmt: skip
    read = {"keep": ["lang", "tokens"], "id_field": "id", **policies}
    all_policies = {"read": read, "encode": {"special_tokens": "text"}}
    write_manifest(
        folder,
        Manifest(
            dataset_id=dataset_id(entries, tokenizer, all_policies), token_dtype="uint16",
            tokenizer=tokenizer, policies=all_policies, totals=totals, sources=sources,
            shards=entries, rejected=[],
        ),
    )  # fmt: skip
    return Dataset(folder)


def _write_shard(folder: Path, stem: str, docs: Sequence[Doc]) -> ShardEntry:
    layout = ShardLayout(UINT16, ("lang", "tokens"), False)
    writer = ShardWriter(folder / "tokens", stem, layout, ("a", "b", "c"))
    for position, doc in enumerate(docs):
        batch = DocumentBatch(
            doc.source, [""], np.array([position]), np.ones(1, np.int64), [doc.name],
            {"lang": [doc.lang], "tokens": ["kept"]},
        )  # fmt: skip
        rows = DocumentRows.of([batch], np.zeros(1, np.bool_), [])
        writer.append(rows, np.array(doc.ids, UINT16), np.array([len(doc.ids)]))
    files = [
        msgspec.structs.replace(entry, name=f"tokens/{stem}.{entry.name}")
        for entry in writer.close()
    ]
    extents = [
        ExtentEntry(source=number, start=0, stop=None)
        for number in sorted({doc.source for doc in docs})
    ]
    num_tokens = sum(len(doc.ids) for doc in docs)
    return ShardEntry(documents=len(docs), tokens=num_tokens, extents=extents, files=files)


def random_shards(seed: int) -> list[list[Doc]]:
    """Three shards of up to 40 documents with few different tokens: a third are duplicates."""
    draw = random.Random(seed)
    return [
        [
            Doc(
                draw.choice([0, 1, 2] if number else [0]),
                draw.choice([*HOSTILE_IDS, None, f"{seed}-{number}-{index}"]),
                draw.choice(["de", "en", None]),
                (*draw.choices([1, 2], k=draw.choice([0, 1, 2, 3, 30])), 0),
            )
            for index in range(draw.randint(1, 40))
        ]
        for number in range(3)
    ]


MODELS = [random_shards(seed) for seed in range(4)]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    folder = tmp_path_factory.mktemp("datasets")
    return [write_dataset(folder / str(n), model) for n, model in enumerate(MODELS)]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of folders that do not exist."""
    folder = tmp_path_factory.mktemp("views")
    return (folder / str(n) for n in count())


def chosen(view: Dataset) -> list[bool]:
    """Whether each document of a view's parents is in it."""
    found: list[bool] = []
    for shard in view.shards:
        assert shard.selected is not None
        found += shard.selected.tolist()
    return found


# The model.


@dataclass(frozen=True)
class Row:
    doc: Doc
    document: int
    dataset: int


def rows_of(models: Sequence[list[list[Doc]]]) -> list[Row]:
    return [
        Row(doc, number, dataset)
        for dataset, model in enumerate(models)
        for number, doc in enumerate(doc for shard in model for doc in shard)
    ]


EXPRESSIONS: dict[str, Callable[[Row], bool]] = {
    "lang = 'de'": lambda row: row.doc.lang == "de",
    "lang is null or tokens > 3": lambda row: row.doc.lang is None or len(row.doc.ids) > 3,
    "not lang = 'de'": lambda row: row.doc.lang not in ("de", None),
    "document % 3 = 1 and dataset = 0": lambda row: row.document % 3 == 1 and row.dataset == 0,
    "LANG in ('en') -- English": lambda row: row.doc.lang == "en",
    "source = 'b' and id like 'a%'": lambda row: (
        row.doc.source == 1 and (row.doc.name or "").startswith("a")
    ),
    "\"column.tokens\" = 'kept'": lambda row: True,
    "length(coalesce(id, '')) = 2": lambda row: len(row.doc.name or "") == 2,
}


def model_of(
    rows: list[Row], where: str | None, only: set[str], without: set[str], dedupe: bool
) -> list[bool]:
    seen: set[tuple[int, ...]] = set()
    kept = []
    for row in rows:
        keep = where is None or EXPRESSIONS[where](row)
        keep = keep and (not only or row.doc.name in only)
        keep = keep and (not without or row.doc.name not in without)
        keep = keep and not (dedupe and row.doc.ids in seen)
        if keep:
            seen.add(row.doc.ids)
        kept.append(keep)
    return kept


def write_ids(path: Path, names: set[str]) -> str | None:
    if not names:
        return None
    path.write_bytes("\r\n\n".join(names).encode())
    return str(path)


@random_trials(
    25,
    1000,
    numbers=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    where=st.sampled_from([None, *EXPRESSIONS]),
    only=st.sets(st.sampled_from([*HOSTILE_IDS, "unknown"])),
    without=st.sets(st.sampled_from([*HOSTILE_IDS, "unknown"])),
    dedupe=st.booleans(),
    all_collide=st.booleans(),
)
def test_a_view_has_the_documents_that_a_plain_model_chooses(
    datasets: list[Dataset],
    places: Iterator[Path],
    numbers: list[int],
    where: str | None,
    only: set[str],
    without: set[str],
    dedupe: bool,
    all_collide: bool,
) -> None:
    pytest.importorskip("duckdb")
    expected = model_of(rows_of([MODELS[n] for n in numbers]), where, only, without, dedupe)
    out = next(places)
    options = SelectOptions(
        where=where,
        only=write_ids(out.with_suffix(".only"), only),
        without=write_ids(out.with_suffix(".without"), without),
        dedupe="exact" if dedupe else None,
    )
    parents = [datasets[n] for n in numbers]
    with pytest.MonkeyPatch.context() as patch:
        if all_collide:
            patch.setattr(
                duplicates, "tags_of", lambda *given: np.zeros(len(given[1]) - 1, np.uint64)
            )
        for name in ("KEYS_AT_ONCE", "PAIRS_AT_ONCE", "MOST_MAPPED"):
            patch.setattr(duplicates, name, 3)
        if not any(expected) or only == {"unknown"} or without == {"unknown"}:
            with pytest.raises(UserError, match=r"no document is chosen|no document has one of"):
                select(parents, out, options)
            assert not out.exists()
            return
        done = select(parents, out, options)
    assert chosen(done.view) == expected
    rows = rows_of([MODELS[n] for n in numbers])
    tokens = sum(len(row.doc.ids) for row, keep in zip(rows, expected, strict=True) if keep)
    assert (done.view.num_documents, done.view.num_tokens) == (sum(expected), tokens)
    left_out = sum(each.documents for each in done.left_out)
    assert left_out == done.of_documents - done.view.num_documents
    left_out = sum(each.tokens for each in done.left_out)
    assert left_out == done.of_tokens - done.view.num_tokens


def shares(view: Dataset) -> list[int]:
    return [source.counts.tokens for source in view.manifest.sources]


@settings(max_examples=40, deadline=None)
@given(
    numbers=st.lists(st.integers(0, 3), min_size=1, max_size=2),
    sizes=st.tuples(st.integers(40, 3000), st.integers(40, 3000)),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_sample_has_the_share_of_each_source_and_contains_smaller_ones(
    datasets: list[Dataset],
    places: Iterator[Path],
    numbers: list[int],
    sizes: tuple[int, int],
    seed: int,
) -> None:
    parents = [datasets[n] for n in numbers]
    whole = [tokens for parent in parents for tokens in shares(parent)]
    longest = 31
    views = []
    for size in sorted(sizes):
        view = select(parents, next(places), SelectOptions(sample=size, seed=seed)).view
        for tokens, of in zip(shares(view), whole, strict=True):
            assert abs(tokens - min(size, sum(whole)) * of / sum(whole)) < longest
        views.append(np.array(chosen(view)))
    assert not (views[0] & ~views[1]).any()
    if sizes[1] >= sum(whole):
        assert views[1].all()


def test_small_sources_together_give_their_share(
    tmp_path: Path, datasets: list[Dataset], places: Iterator[Path]
) -> None:
    """Each of 240 sources has a share of a few tokens, less than most documents."""
    parents = [datasets[0]] * 80
    whole = sum(parent.num_tokens for parent in parents)
    sizes = [
        select(parents, next(places), SelectOptions(sample=whole / 80, seed=seed)).view.num_tokens
        for seed in range(5)
    ]
    assert all(0.5 * whole / 80 < size < 2 * whole / 80 for size in sizes), sizes


def few(folder: Path) -> Dataset:
    return write_dataset(
        folder,
        [
            [
                Doc(0, "a", "de", (1, 2, 0)),
                Doc(1, "b", "en", (1, 0)),
                Doc(0, None, None, (1, 2, 0)),
            ],
            [Doc(2, "c", "de", (2, 0)), Doc(2, "a", "en", (1, 0))],
        ],
    )


def test_the_report_says_what_each_question_left_out(tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    dataset = few(tmp_path / "data")
    names = tmp_path / "names.txt"
    names.write_bytes(b"\xef\xbb\xbfb\n\nx1\nx2\n")
    options = SelectOptions(
        where="lang is null or lang = 'en' or tokens = 3", without=str(names), dedupe="exact"
    )
    done = select([dataset], tmp_path / "view", options)
    told = [(each.question, each.documents, each.tokens) for each in done.left_out]
    assert told == [
        ("where lang is null or lang = 'en' or tokens = 3", 1, 2),
        (f"without the 3 ids in {names}", 1, 2),
        ("without exact duplicates", 1, 3),
    ]
    assert list(map(str, done.unknown)) == [f"2 of 3 ids of {names}: x1, x2"]
    assert chosen(done.view) == [True, False, False, False, True]
    assert done.view.question == [question for question, *_ in told]
    again = select([done.view, dataset], tmp_path / "again", SelectOptions(dedupe="exact"))
    assert chosen(again.view) == [True, False, False, False, True] + 3 * [False] + [True, False]
    assert again.view.question == [*done.view.question, "without exact duplicates"]


HOSTILE = {
    "read_csv('/etc/passwd') = 1": 'Function "read_csv" is a table function',
    "exists(select * from read_text('/etc/passwd'))": "it contains a subquery",
    "tokens > (select avg(tokens) from documents)": "it contains a subquery",
    "(from read_text('/etc/passwd')) is null": "it contains a subquery",
    "tokens > 1; drop table documents": "syntax error",
    "tokens > 1) or (true": "syntax error",
    "true) from documents where (true": "syntax error",
    "true) union select (true": "",
    "tokens > 1 limit 1": "syntax error",
    "tokens > 1 /*": "unterminated",
    "tokens > 1, true": "Expected a single expression",
    "max(tokens) > 1": "aggregate",
    "row_number() over () < 2": "window",
    "random() < 0.5": "random() gives another result each time",
    "tokens": "its values are BIGINT, not true or false",
    "lang": "its values are VARCHAR, not true or false",
    "language = 'de'": 'Referenced column "language" not found',
    "lang::int > 1": "Could not convert string",
    "tokens = $1": "parameter",
    "regexp_matches(lang, '(')": "missing )",
    "": "",
    "getenv('HOME') = '/root'": "",
    "repeat('x', 100000000000) = lang": "",
}


@pytest.mark.parametrize("expression", HOSTILE)
def test_an_expression_can_only_compute_and_its_error_is_short(
    expression: str, tmp_path: Path
) -> None:
    pytest.importorskip("duckdb")
    dataset = few(tmp_path / "data")
    with pytest.raises(UserError) as caught:
        select([dataset], tmp_path / "view", SelectOptions(where=expression))
    *lines, columns = caught.value.why.split("\n       ")
    assert columns == (
        "the columns are source, position, id, subset, lang, column.tokens, "
        "tokens, document, dataset"
    )
    assert 1 <= len(lines) <= 2
    assert HOSTILE[expression] in lines[0]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_without_duckdb_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(UserError, match=r"--where needs DuckDB[^\n]*\n  next: pip install"):
        select([few(tmp_path / "data")], tmp_path / "view", SelectOptions(where="true"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a file of ids is empty"),
        (b"\n \r\n", "a file of ids is empty"),
        (b"a\n\xff\n", "line 2 is not valid UTF-8"),
        (b"x\ny\n", "2 of 2 ids of FILE: x, y"),
        (b"\n".join(b"%d" % n for n in range(12)), "12 of 12 ids of FILE: 0, .*, 9, ...$"),
    ],
)
def test_a_file_without_usable_ids_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    dataset, path = few(tmp_path / "data"), tmp_path / "names.txt"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        select([dataset], tmp_path / "view", SelectOptions(without=str(path)))
    text = str(caught.value).replace(str(path), "FILE").split("\n  next:")[0]
    assert re.search(message, text), text
    assert not (tmp_path / "view").exists()


def test_a_dataset_without_ids_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    docs = [[Doc(0, None, None, (1, 0))]]
    dataset = write_dataset(tmp_path / "data", docs, id_field=None)
    with pytest.raises(UserError, match="cannot read a file of ids"):
        select([dataset], tmp_path / "view", SelectOptions(only=str(tmp_path / "missing")))
    (tmp_path / "names").write_text("a")
    with pytest.raises(UserError, match=r"no document has an id\n  next: .* --id-field"):
        select([dataset], tmp_path / "view", SelectOptions(only=str(tmp_path / "names")))


def test_other_tokenizers_taken_names_and_columns_of_only_one_dataset_are_refused(
    tmp_path: Path,
) -> None:
    pytest.importorskip("duckdb")
    one, shards = few(tmp_path / "one"), [[Doc(0, "a", "de", (1, 0))]]
    other = write_dataset(tmp_path / "other", shards, tokenizer="another")
    with pytest.raises(UserError, match="cannot be in one view"):
        select([one, other], tmp_path / "view", SelectOptions())
    with pytest.raises(OutputConflictError, match="already exists"):
        select([one], tmp_path / "one", SelectOptions())
    assert not (tmp_path / "view").exists()


def test_equal_documents_of_many_shards_are_found(tmp_path: Path) -> None:
    """Long documents of any length, so that the last bytes of words decide."""
    docs = [Doc(0, None, None, (*[1] * length, 0)) for length in range(40)]
    changed = [Doc(0, None, None, (*doc.ids[:-1], 2)) for doc in docs]
    dataset = write_dataset(tmp_path / "data", [docs, changed, docs[::-1], changed])
    done: Selected = select([dataset], tmp_path / "view", SelectOptions(dedupe="exact"))
    assert chosen(done.view) == 80 * [True] + 80 * [False]
    assert done.left_out[0].tokens == 2 * sum(len(doc.ids) for doc in docs)


def test_a_sample_is_the_same_on_every_machine(tmp_path: Path) -> None:
    docs = [Doc(n % 3, None, None, (*[1] * (n % 7), 0)) for n in range(30)]
    dataset = write_dataset(tmp_path / "data", [docs])
    view = select([dataset], tmp_path / "view", SelectOptions(sample=40, seed=1)).view
    assert np.flatnonzero(chosen(view)).tolist() == [
        *(0, 3, 14, 15, 16, 18, 19, 21, 22, 23, 26, 28),
    ]
    assert (shares(dataset), shares(view)) == ([40, 36, 39], [13, 12, 10])

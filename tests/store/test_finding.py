"""What is found is what a search of the decoded texts, one by one, finds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill
from conftest import write_jsonl
from tokenmill import Dataset, Findings
from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.store.plan import open_plan
from tokenmill.store.selecting import matching, texts
from view_kit import built, documents_of, view_of

PIECES = ["a", "b", "ab", "é", "日本", "😀", " ", "\n", "the quick", "aaa", "."]
TEXT = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def random_texts(seed: int, num: int) -> list[str]:
    draw = np.random.default_rng(seed)
    return ["".join(draw.choice(PIECES, size=draw.integers(1, 60))) for _ in range(num)]


TEXTS = {f"{name}.jsonl": random_texts(seed, 40) for seed, name in enumerate("ab")}
ALL = [text for each in TEXTS.values() for text in each]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    folder = tmp_path_factory.mktemp("finding")
    made = built(folder, tokenizer_path, TEXTS, eos=None, pad=None)
    tokenmill.pack(made, sequence_length=16, name="short")
    return made


def occurrences(found: Findings) -> dict[int, int]:
    return {each.document: each.occurrences for each in found.documents}


@pytest.mark.parametrize("in_small_blocks", [False, True])
@settings(max_examples=15, deadline=None)
@given(string=TEXT.filter(bool), seed=st.integers(0, len(ALL) - 1), size=st.integers(1, 40))
def test_a_string_is_found_where_a_plain_search_finds_it(
    dataset: Dataset, in_small_blocks: bool, string: str, seed: int, size: int
) -> None:
    part = ALL[seed][:size]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "BLOCK_BYTES", 64 if in_small_blocks else 1 << 20)
        for each in (string, part):
            expected = {i: text.count(each) for i, text in enumerate(ALL) if each in text}
            found = tokenmill.find(dataset, each)
            assert occurrences(found) == expected
            assert [(count.documents, count.occurrences) for count in found.counts] == [
                (len(expected), sum(expected.values()))
            ]
            assert {hit.match for hit in found.documents} <= {each}


@pytest.mark.parametrize("in_small_blocks", [False, True])
@settings(max_examples=15, deadline=None)
@given(strings=st.lists(TEXT.filter(bool), min_size=2, max_size=12, unique=True))
def test_each_of_many_strings_is_counted_as_if_it_were_alone(
    dataset: Dataset, in_small_blocks: bool, strings: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "BLOCK_BYTES", 64 if in_small_blocks else 1 << 20)
        found = tokenmill.find(dataset, strings)
    assert [(each.string, each.documents, each.occurrences) for each in found.counts] == [
        (each, sum(each in text for text in ALL), sum(text.count(each) for text in ALL))
        for each in strings
    ]
    expected = {i: sum(text.count(each) for each in strings) for i, text in enumerate(ALL)}
    assert occurrences(found) == {i: count for i, count in expected.items() if count}


@pytest.mark.parametrize(
    "pattern",
    ["a+b", r"\bthe\b", "^a", r"\w+\.$", "日.{1,3}é", "(?i)THE", r"[^\W\d_]{4,}", "(?=b)|ab"],
)
def test_a_regular_expression_is_matched_against_each_text(dataset: Dataset, pattern: str) -> None:
    expected = [[match[0] for match in re.finditer(pattern, text) if match[0]] for text in ALL]
    found = tokenmill.find(dataset, pattern, regex=True)
    assert occurrences(found) == {i: len(each) for i, each in enumerate(expected) if each}
    assert [hit.match for hit in found.documents] == [each[0] for each in expected if each]


@pytest.mark.parametrize("by_reference", [False, True])
@pytest.mark.parametrize("string", ["ab", "日本", "the quick", "k.😀"])
def test_sequences_are_those_that_have_tokens_of_an_occurrence(
    dataset: Dataset, string: str, by_reference: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by_reference:
        monkeypatch.setattr(texts, "token_texts", lambda file, reference: None)
    plan = open_plan(dataset, "short")
    segments: dict[int, list[tuple[int, int, int]]] = {}
    for sequence in range(len(plan)):
        for document, start, length in plan.segments(sequence):
            segments.setdefault(document, []).append((sequence, start, start + length))
    found = tokenmill.find(dataset, string, plan="short")
    assert found.decoded_by_reference == by_reference
    ids, token_size = documents_of(dataset), token_sizes(dataset)
    for each in found.documents:
        sizes = [token_size[i] for i in ids[each.document][:-1]]
        ends = np.cumsum(sizes)
        data, needle = ALL[each.document].encode(), string.encode()
        spans = [(match.start(), match.end()) for match in re.finditer(re.escape(needle), data)]
        tokens = [
            {i for i in range(len(sizes)) if ends[i] > start and ends[i] - sizes[i] < stop}
            for start, stop in spans
        ]
        own = [(s, set(range(a, b))) for s, a, b in segments.get(each.document, [])]
        assert each.sequences == sorted({s for s, part in own for t in tokens if part & t})
        assert each.left_out == sum(not any(part & t for _, part in own) for t in tokens)
        whole = sum(any(t <= part for _, part in own) for t in tokens)
        assert each.cut == len(tokens) - whole - each.left_out
    assert found.documents
    assert string not in ("日本", "the quick") or any(each.cut for each in found.documents)


def token_sizes(dataset: Dataset) -> list[int]:
    """The bytes of each token of the byte-level tokenizer: a character of its spelling each."""
    tokenizer = tokenizers.Tokenizer.from_file(str(dataset.tokenizer_folder / "tokenizer.json"))
    return [len(tokenizer.id_to_token(i)) for i in range(tokenizer.get_vocab_size())]


def test_documents_are_described_with_the_text_around_the_first_occurrence(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    long = "x" * 300
    write_jsonl(tmp_path / "a.jsonl", ["nothing", f"{long}<é{long}"], id=["one", "two"])
    tokenmill.build(
        tmp_path / "a.jsonl", tokenizer_path, tmp_path / "corpus", workers=1, id_field="id"
    )
    found = tokenmill.find(tmp_path / "corpus", "<é")
    (each,) = found.documents
    assert (each.document, each.source, each.id) == (1, "a.jsonl", "two")
    assert (each.before, each.match, each.after) == ("x" * 60, "<é", "x" * 60)
    assert (each.sequences, each.cut, each.left_out) == (None, None, None)
    assert (found.num_documents, found.num_tokens) == (1, each.tokens)
    assert each.position == len('{"text": "nothing", "id": "one"}\n')


def test_only_counting_lists_no_document(dataset: Dataset) -> None:
    listed, counts = (tokenmill.find(dataset, "ab", count=count) for count in (False, True))
    assert counts.documents == []
    assert (counts.num_documents, counts.counts) == (len(listed.documents), listed.counts)


def test_what_is_found_becomes_a_view_and_can_be_left_out(dataset: Dataset, tmp_path: Path) -> None:
    found = tokenmill.find(dataset, "日本", save=tmp_path / "found")
    having = [i for i, text in enumerate(ALL) if "日本" in text]
    assert found.view is not None
    view = tokenmill.open(found.view)
    assert view.question == ['containing "日本"']
    assert documents_of(view) == [documents_of(dataset)[i] for i in having]
    rest = tokenmill.select(dataset, tmp_path / "rest", without=str(tmp_path / "found"))
    assert rest.question == [f"without the {len(having)} documents of {tmp_path}/found"]
    assert documents_of(rest) == [
        ids for i, ids in enumerate(documents_of(dataset)) if i not in having
    ]
    assert tokenmill.find(rest, "日本").num_documents == 0
    again = tokenmill.select(dataset, tmp_path / "again", only=str(tmp_path / "found"))
    assert documents_of(again) == documents_of(view)
    with pytest.raises(OutputConflictError, match="already exists"):
        tokenmill.find(dataset, "a", save=tmp_path / "found")
    with pytest.raises(UserError, match="no document is chosen"):
        tokenmill.find(dataset, "nowhere", save=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match="the view has no document of these datasets"):
        tokenmill.select(rest, tmp_path / "empty", without=str(tmp_path / "found"))


def test_a_view_is_searched_with_the_numbers_of_its_documents(
    dataset: Dataset, tmp_path: Path
) -> None:
    chosen = set(range(0, len(ALL), 3))
    view = view_of(tmp_path / "view", [dataset, dataset], chosen)
    expected = {i: ALL[i].count("ab") for i in sorted(chosen) if "ab" in ALL[i]}
    assert occurrences(tokenmill.find(view, "ab")) == expected


class Characters:
    """A tokenizer written in Python: one id a character."""

    eos_token, eos_token_id = "<eos>", 0

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def test_a_tokenizer_written_in_python_decodes_each_document(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", ["日本 is found", "not here"])
    tokenizer = Characters()
    tokenmill.build(tmp_path / "a.jsonl", tokenizer, tmp_path / "corpus", workers=1)
    found = tokenmill.find(tmp_path / "corpus", "本 is", tokenizer=tokenizer)
    assert (occurrences(found), found.decoded_by_reference) == ({0: 1}, True)
    with pytest.raises(UserError, match="Python"):
        tokenmill.find(tmp_path / "corpus", "本 is")


@pytest.mark.parametrize(
    ("strings", "regex", "message"),
    [
        ("", False, "a string to find is empty"),
        ([], False, "there is nothing to find"),
        (["a", ""], False, "a string to find is empty"),
        ("\ud800", False, "half of a surrogate pair"),
        ("a(", True, "wrong regular expression"),
        ("a*", True, "it matches the empty text"),
        (["a", "b"], True, "several regular expressions"),
    ],
)
def test_what_cannot_be_found_is_refused(
    dataset: Dataset, strings: str | Sequence[str], regex: bool, message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        tokenmill.find(dataset, strings, regex=regex)


def test_too_many_strings_are_refused(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    build = matching.double_array
    monkeypatch.setattr(matching, "double_array", lambda strings: build(strings, 512))
    with pytest.raises(UserError, match="too many strings to find at once"):
        tokenmill.find(dataset, [f"{i:05d}" for i in range(2000)])

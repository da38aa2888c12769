"""Documents that share words with a benchmark are those that a plain model finds, and no others."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tokenmill
from conftest import random_trials, write_jsonl
from tokenmill import Dataset
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.encode.words.compared import (
    WITHOUT_SPACES,
    characters,
    compared_words,
    image_of,
)
from tokenmill.kernels.normalized_words import DROPPED, SPACE
from tokenmill.reports.verify import verify
from tokenmill.store.copying.copy import copy
from tokenmill.store.selecting import benchmark, texts
from tokenmill.store.selecting.options import SelectOptions
from tokenmill.store.selecting.select import Selected, select
from view_kit import documents_of

ALPHABET = (
    "aAb \n.'-", "é", "e\u0301", "ßẞ", "\ufb01", "½", "Σςσ", "字漢", "か\u3099が", "\u3002\u3000",
    "\u00ad\u200b\u0085\u2028", "\U0001f600", "한\u1100\u1161", "\u0e01\u0e33", "ﷺ", "𠀀", "\x00",
    "\U000e0041\U000e0100",
)  # fmt: skip


# The model.


def words_of(text: str) -> list[str]:
    """The words of a text, character by character."""
    words, last_kind = [""], "space"
    for character in text:
        image, kind = image_of(character), "letter"
        if character.isspace():
            kind = "space"
        elif not image:
            continue
        elif unicodedata.category(character)[0] == "M":
            kind = "mark"
        elif any(ord(character) in codes for codes in WITHOUT_SPACES):
            kind = "alone"
        if kind != "mark":
            if kind in ("space", "alone") or kind != last_kind:
                words.append("")
            last_kind = kind
        words[-1] += image
    return [word for word in words if word]


def runs_of(text: str, length: int) -> set[tuple[str, ...]]:
    words = words_of(text)
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def pairs_of(
    documents: Sequence[str], lines: Sequence[Sequence[str]], length: int
) -> set[tuple[int, int]]:
    """Which documents share a run with which lines of strings."""
    of_lines = [set().union(*(runs_of(each, length) for each in line)) for line in lines]
    return {
        (document, line)
        for document, text in enumerate(documents)
        for line, runs in enumerate(of_lines)
        if runs & runs_of(text, length)
    }


# Words.


def words_of_each(some: Sequence[bytes]) -> list[list[str]]:
    offsets = np.cumsum([0, *map(len, some)])
    data, edges, before = compared_words(np.frombuffer(b"".join(some), np.uint8), offsets)
    words = [data[a:b].tobytes().decode() for a, b in pairwise(edges.tolist())]
    return [words[a:b] for a, b in pairwise(before.tolist())]


@settings(deadline=None)
@given(
    st.lists(st.text(st.sampled_from("".join(ALPHABET)) | st.characters(exclude_categories=["Cs"])))
)
def test_words_are_those_of_a_model(some: list[str]) -> None:
    words = words_of_each([text.encode() for text in some])
    assert words == [words_of(text) for text in some]


def test_words_have_no_case_and_no_punctuation() -> None:
    texts = {
        "“It’s ﬁne — REALLY!”, she-wolf said...": ["its", "fine", "really", "shewolf", "said"],
        "Straße STRASSE ΟΔΟΣ οδος": ["strasse", "strasse", "οδοσ", "οδοσ"],
        "caf\u00e9 cafe\u0301": ["cafe\u0301", "cafe\u0301"],
        "a + b = 3.14 $": ["a", "b", "314"],
        "他说GPT-3好。が か\u3099": ["他", "说", "gpt3", "好", "か\u3099", "か\u3099"],
        "한 사람\u00ad은": [
            "\u1112\u1161\u11ab",
            "\u1109\u1161\u1105\u1161\u11b7\u110b\u1173\u11ab",
        ],
        "… -- ! \u200b": [],
        "one\u00a0two\u2028three": ["one", "two", "three"],
        "a \u0301b": ["a", "\u0301", "b"],
    }
    assert {text: words_of_each([text.encode()])[0] for text in texts} == texts


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12), max_size=5))
def test_broken_bytes_are_left_out_and_change_no_other_text(some: list[bytes]) -> None:
    assert words_of_each(some) == [words_of(text.decode(errors="ignore")) for text in some]


def test_images_fit_and_no_character_grows_beyond_its_room() -> None:
    kinds, offsets, images, growth = characters()
    sizes = np.array([len(chr(code).encode(errors="replace")) for code in range(len(kinds) - 1)])
    lengths = np.diff(offsets)
    assert (lengths[:-1] <= growth * sizes).all()
    assert (kinds[-1], lengths[-1], offsets[-1]) == (DROPPED, 0, len(images))
    assert ((lengths == 0) == ((kinds == DROPPED) | (kinds == SPACE))).all()


# Documents.


def random_text(draw: random.Random) -> str:
    """Of few different words, so that runs of three are often shared by chance."""
    words = ["a", "B", "c.", "Don't", "é", "e\u0301", "字", "—", "ß", "ss"]
    gaps = [" ", "\n", "\u3000", " - "]
    return "".join(draw.choice(words) + draw.choice(gaps) for _ in range(draw.randint(0, 25)))


TEXTS = [random_text(random.Random(seed)) or "-" for seed in range(48)]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> list[Dataset]:
    """The texts in two datasets with two sources each."""
    folder = tmp_path_factory.mktemp("contained")
    made = []
    for number in range(2):
        own = TEXTS[24 * number : 24 * number + 24]
        paths = [
            write_jsonl(
                folder / f"{number}{name}.jsonl", part, id=[f"{name}{i}" for i in range(12)]
            )
            for name, part in (("x", own[:12]), ("y", own[12:]))
        ]
        options = {"workers": 1, "id_field": "id"}
        made.append(tokenmill.build(paths, tokenizer_path, folder / str(number), **options).dataset)
    return made


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Names of files that do not exist."""
    folder = tmp_path_factory.mktemp("views")
    return (folder / str(n) for n in count())


def chosen(view: Dataset) -> list[bool]:
    found: list[bool] = []
    for shard in view.shards:
        assert shard.selected is not None
        found += shard.selected.tolist()
    return found


def matches_of(done: Selected) -> list[dict[str, object]]:
    assert done.matches is not None
    return [json.loads(line) for line in done.matches.read_text().splitlines()]


def write_lines(path: Path, lines: Sequence[Sequence[str]]) -> Path:
    values = [{"q": line[0], "more": [{"a": text} for text in line[1:]], "n": 3} for line in lines]
    path.write_text("".join(json.dumps(value) + "\n\n" for value in values))
    return path


def pieces(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    start = draw(st.integers(0, len(text)))
    stop = draw(st.integers(start, len(text)))
    return (
        draw(st.sampled_from(["", "zz ", "字"]))
        + text[start:stop].swapcase()
        + draw(st.sampled_from(["", " zz", "."]))
    )


@random_trials(
    30,
    1000,
    lines=st.lists(
        st.lists(st.composite(pieces)(), min_size=1, max_size=3), min_size=1, max_size=6
    ),
    length=st.sampled_from([1, 2, 3, 5, 13]),
    keeps=st.booleans(),
    block=st.sampled_from([8, 64, 1 << 22]),
    at_once=st.sampled_from([1, 1 << 22]),
)
def test_a_view_has_the_documents_that_share_words_with_a_text(
    datasets: list[Dataset],
    names: Iterator[Path],
    lines: list[list[str]],
    length: int,
    keeps: bool,
    block: int,
    at_once: int,
) -> None:
    out = next(names)
    file = str(write_lines(out.with_suffix(".jsonl"), lines))
    options = SelectOptions(**{"contains" if keeps else "without_contained": file, "words": length})
    pairs = pairs_of(TEXTS, lines, length)
    holds = [any((n, line) in pairs for line in range(len(lines))) for n in range(len(TEXTS))]
    short = [n for n, line in enumerate(lines) if not any(runs_of(each, length) for each in line)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "BLOCK_BYTES", block)
        patch.setattr(benchmark, "RUN_WORDS_AT_ONCE", at_once)
        if len(short) == len(lines):
            with pytest.raises(UserError, match="no text is long enough to be found"):
                select(datasets, out, options)
            return
        if True not in [each == keeps for each in holds]:
            with pytest.raises(UserError, match="no document is chosen"):
                select(datasets, out, options)
            assert not out.exists()
            return
        done = select(datasets, out, options)
    assert chosen(done.view) == [each == keeps for each in holds]
    (report,) = done.contained
    assert (report.documents, report.texts) == (sum(holds), len(lines))
    assert report.found == len({line for _, line in pairs})
    assert report.too_short == len(short)
    assert report.first_too_short == [f"{file}:{2 * line + 1}" for line in short]
    by_text = {
        f"{file}:{2 * n + 1}": sum(line == n for _, line in pairs) for n in range(len(lines))
    }
    assert report.most == {text: number for text, number in by_text.items() if number}
    listed = [
        (24 * match["dataset"] + match["document"], int(found["text"].rpartition(":")[2]) // 2)
        for match in matches_of(done)
        for found in match["matches"]
    ]
    assert sorted(listed) == sorted(pairs)
    for match in matches_of(done):
        number = 24 * match["dataset"] + match["document"]
        assert match["source"] == f"{number // 24}{'xy'[number % 24 // 12]}.jsonl"
        assert match["id"] == f"{'xy'[number % 24 // 12]}{number % 12}"
        assert match["texts"] == len(match["matches"])
        for found in match["matches"]:
            line = lines[int(found["text"].rpartition(":")[2]) // 2]
            shared = tuple(found["words"].split(" "))
            assert len(shared) == length
            assert shared in runs_of(TEXTS[number], len(shared))
            assert shared in set().union(*(runs_of(each, len(shared)) for each in line))


SENTENCE = "One two three four five six seven eight nine ten eleven twelve thirteen"


def few(folder: Path, tokenizer: Path, some: Sequence[str], **options: object) -> Dataset:
    folder.mkdir(exist_ok=True)
    path = write_jsonl(folder / "texts.jsonl", some)
    return tokenmill.build(path, tokenizer, folder / "corpus", workers=1, **options).dataset


def test_thirteen_words_in_a_row_are_found_and_twelve_are_not(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    """At the start, at the end, across lines, but not across documents."""
    first, last = SENTENCE[:40], SENTENCE[40:]
    documents = [
        SENTENCE,
        f"He said: “{SENTENCE.upper()}!”",
        SENTENCE.replace(" ", "\n\n- ") + " fourteen",
        SENTENCE.removesuffix(" thirteen"),
        SENTENCE.replace("seven", "seventh"),
        first,
        last,
        SENTENCE.replace("five ", "five and "),
        f"x {SENTENCE}",
    ]
    dataset = few(tmp_path, tokenizer_path, documents)
    file = tmp_path / "bench.txt"
    file.write_text(f"\ufeffnothing\r\n\r\n{SENTENCE.replace('nine', 'nine,')} fifteen\r\n")
    done = select([dataset], tmp_path / "view", SelectOptions(without_contained=str(file)))
    assert np.flatnonzero(chosen(done.view)).tolist() == [3, 4, 5, 6, 7]
    digest = "f" * 12
    question = (
        f"without documents that share 13 words in a row with one of 2 texts in {file} (SHA-256 "
    )
    assert [each.question[: len(question)] for each in done.left_out] == [question]
    assert len(done.left_out[0].question) == len(question) + len(digest) + 1
    assert [(match["document"], match["texts"]) for match in matches_of(done)] == [
        (0, 1), (1, 1), (2, 1), (8, 1),
    ]  # fmt: skip
    assert matches_of(done)[1]["matches"] == [{"text": f"{file}:3", "words": SENTENCE.lower()}]
    (report,) = done.contained
    assert (report.documents, report.found, report.first_too_short) == (4, 1, [f"{file}:1"])
    assert report.most == {f"{file}:3": 4}


def test_a_view_of_a_view_a_copy_and_a_plan_have_the_other_documents(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    documents = [f"{number} {SENTENCE if number % 2 else 'free'}" for number in range(6)]
    dataset = few(tmp_path, tokenizer_path, documents)
    (tmp_path / "a.txt").write_text(SENTENCE)
    (tmp_path / "b.txt").write_text("2 free\n\n4 free")
    view = tokenmill.select(dataset, tmp_path / "view", without_contained=tmp_path / "a.txt")
    again = tokenmill.select(
        view, tmp_path / "again", without_contained=tmp_path / "b.txt", words=2
    )
    assert chosen(again) == [True, False, False, False, False, False]
    matches = (again.folder / "matches.jsonl").read_text().splitlines()
    assert [json.loads(line)["document"] for line in matches] == [2, 4]
    assert [question.split(" of ")[0] for question in again.question] == [
        "without documents that share 13 words in a row with one",
        "without documents that share 2 words in a row with one",
    ]
    assert verify(view.folder).documents == 3
    copy(str(view.folder), str(tmp_path / "copy"))
    assert documents_of(tokenmill.open(tmp_path / "copy")) == documents_of(view)
    tokenmill.pack(view, sequence_length=64)
    (batch,) = view.batches(batch_size=1, shuffle="none", epochs=1)
    assert batch["input_ids"].shape == (1, 64)


def test_other_questions_come_first_and_their_documents_are_not_listed(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", [SENTENCE] * 3, id=["a", "b", "c"])
    dataset = tokenmill.build(path, tokenizer_path, tmp_path / "data", id_field="id").dataset
    (tmp_path / "ids").write_text("b")
    (tmp_path / "b.txt").write_text(SENTENCE)
    options = SelectOptions(
        without=str(tmp_path / "ids"), contains=str(tmp_path / "b.txt"), dedupe="exact"
    )
    done = select([dataset], tmp_path / "view", options)
    assert chosen(done.view) == [True, False, False]
    assert [(match["document"], match["id"]) for match in matches_of(done)] == [(0, "a"), (2, "c")]
    assert [each.documents for each in done.left_out] == [1, 0, 1]


def test_many_texts_are_counted_and_the_first_are_listed(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = few(tmp_path, tokenizer_path, [f"x {SENTENCE} {SENTENCE}", "other"])
    (tmp_path / "b.txt").write_text(f"{SENTENCE} {SENTENCE}\n" * 30)
    done = select([dataset], tmp_path / "view", SelectOptions(contains=str(tmp_path / "b.txt")))
    (match,) = matches_of(done)
    assert (match["texts"], len(match["matches"])) == (30, 10)
    assert [found["text"].rpartition(":")[2] for found in match["matches"]] == [
        *map(str, range(1, 11))
    ]
    assert {found["words"] for found in match["matches"]} == {SENTENCE.lower()}
    assert (done.contained[0].found, len(done.contained[0].most)) == (30, 10)


def test_any_json_value_is_a_text_and_no_run_crosses_its_strings(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    dataset = few(tmp_path, tokenizer_path, ["x y z", "u v w", "p q r"])
    file = tmp_path / "b.jsonl"
    file.write_text(
        '["too", "short"]\n{"x y z": "x y", "a": "z"}\n"U, V, W"\n{"a": [{"b": "p q r"}]}'
    )
    done = select([dataset], tmp_path / "view", SelectOptions(contains=str(file), words=3))
    assert chosen(done.view) == [False, True, True]
    (report,) = done.contained
    assert list(report.most) == [f"{file}:3", f"{file}:4"]
    assert report.first_too_short == [f"{file}:1", f"{file}:2"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("b.txt", b"", "a file of texts is empty"),
        ("b.txt", b"\n \r\n", "a file of texts is empty"),
        ("b.jsonl", b"\xef\xbb\xbf\n", "a file of texts is empty"),
        ("b.txt", b"a\n\xff\n", "line 2 is not valid UTF-8"),
        ("b.jsonl", b'{"a": "b"}\n{"a": \n', "line 2: Input data was truncated"),
        ("b.jsonl", b'"\xff"\n', "line 1 is not valid UTF-8"),
        ("b.jsonl", b"[" * 100_000, "line 1: "),
        ("b.jsonl", b'{"a": 1}\n', "each of 1 text has fewer than 13 words"),
        ("b.txt", b"a b\nc\n", "each of 2 texts has fewer than 13 words"),
        ("b.csv", b"a", "its name ends in .csv"),
        ("b", b"a", "its name ends in nothing"),
    ],
)
def test_a_file_without_usable_texts_is_refused(
    name: str, content: bytes, message: str, tmp_path: Path, datasets: list[Dataset]
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        select(datasets, tmp_path / "view", SelectOptions(contains=str(tmp_path / name)))
    assert message in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_missing_and_too_large_files_are_refused(
    tmp_path: Path, datasets: list[Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, why in ((str(tmp_path / "no.txt"), "No such file"), ("s3://b/c.txt", "must be on")):
        with pytest.raises(UserError, match=why):
            select(datasets, tmp_path / "view", SelectOptions(contains=name))
    monkeypatch.setattr(benchmark, "MOST_RUN_WORDS", 3 * 13)
    (tmp_path / "b.txt").write_text("a b\nc d\n")
    with pytest.raises(UserError, match=r"it has more than 3 words\n  next: split it"):
        select(datasets, tmp_path / "view", SelectOptions(contains=str(tmp_path / "b.txt")))


def test_changed_matches_are_damage(tmp_path: Path, tokenizer_path: Path) -> None:
    dataset = few(tmp_path, tokenizer_path, [SENTENCE, "other"])
    (tmp_path / "b.txt").write_text(SENTENCE)
    select([dataset], tmp_path / "view", SelectOptions(contains=str(tmp_path / "b.txt")))
    matches = tmp_path / "view" / "matches.jsonl"
    content = matches.read_bytes()
    matches.write_bytes(content.replace(b"three", b"thief"))
    with pytest.raises(VerificationError, match="the digest of the matches differs"):
        verify(tmp_path / "view")
    matches.unlink()
    with pytest.raises(VerificationError, match="the matches are missing"):
        Dataset(tmp_path / "view")

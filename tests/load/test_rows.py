"""Rows: whole small ones, all of a corpus against a model in plain Python, and what always holds.

Texts of digits have one token for each character, so that rows can be read: `.` is the end of a
document (and every token set at a cut), `_` is padding, `-` is a place without a label.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
from corpora import documents, in_small_shards, write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import Segment, plan_of
from tokenizers.processors import TemplateProcessing

import tokenmill
from conftest import write_jsonl
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.kernels import interpreted
from tokenmill.load.rows.reader import RowReader, Rows
from tokenmill.load.steps.curriculum import shortened
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import pack
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import Plan
from tokenmill.store.row_format import Labels

EOS = 0
CONVENTIONS: list[Labels] = ["aligned", "next"]
Build = Callable[..., Dataset]


@pytest.fixture
def build(tmp_path: Path, tokenizer_path: Path) -> Build:
    """Makes a dataset of some texts."""
    numbers = count()

    def make(texts: list[str], **columns: list[Any]) -> Dataset:
        number = next(numbers)
        path = write_jsonl(tmp_path / f"{number}.jsonl", texts, **columns)
        options: dict[str, Any] = {"no_loss": "no_loss"} if "no_loss" in columns else {}
        options |= {"keep": list(columns)} if columns and not options else {}
        out = tmp_path / f"dataset-{number}"
        return tokenmill.build(path, tokenizer_path, out, workers=1, **options).dataset

    return make


@pytest.fixture(scope="module")
def several_shards(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    """160 documents in several shards."""
    folder = tmp_path_factory.mktemp("several")
    write_corpus(folder / "data", num_files=4, per_file=40)
    made = in_small_shards(folder / "data", tokenizer_path, folder / "out")
    assert len(made.shards) >= 4
    return made


@pytest.fixture(scope="module")
def with_spans(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Dataset:
    """Documents of digits and lines, with ranges that carry no loss."""
    folder = tmp_path_factory.mktemp("spans")
    source = random.Random(5)
    texts = ["".join(source.choices("123456789\n", k=source.randint(1, 70))) for _ in range(120)]
    spans = [
        sorted(
            sorted(source.choices(range(len(text) + 1), k=2)) for _ in range(source.randint(0, 3))
        )
        for text in texts
    ]
    path = write_jsonl(folder / "a.jsonl", texts, no_loss=spans)
    return tokenmill.build(
        path, tokenizer_path, folder / "out", workers=1, no_loss="no_loss"
    ).dataset


def planned(folders: Iterable[Path], dataset: Dataset, **options: Any) -> Plan:
    return pack(dataset, PackOptions(**options), next(iter(folders))).plan


def rows_of(dataset: Dataset, plan: Plan, labels: Labels) -> Rows:
    """All rows of a plan whose rows are of one length."""
    reader = RowReader(dataset, plan, labels)
    return reader.read(np.arange(len(plan)), reader.plan.rows.row_lengths[0])


def shown_ids(rows: Rows) -> list[str]:
    return [_shown(*row, "_") for row in zip(rows.ids.tolist(), rows.real.tolist(), strict=True)]


def shown_labels(rows: Rows) -> list[str]:
    pairs = zip(rows.labels.tolist(), rows.has_label.tolist(), strict=True)
    return [_shown(*row, "-") for row in pairs]


def positions(rows: Rows) -> list[list[int]]:
    """The distance of every place from the last restart in its row."""
    found = []
    for row in rows.restarts.tolist():
        begin = [place for place, restarts in enumerate(row) if restarts]
        found.append([place - max(b for b in begin if b <= place) for place in range(len(row))])
    return found


def shown_positions(rows: Rows) -> list[str]:
    return ["".join(map(str, row)) for row in positions(rows)]


def _shown(ids: list[int], meant: list[bool], otherwise: str) -> str:
    characters = {EOS: ".", **{16 + digit: str(digit) for digit in range(10)}}
    return "".join(
        characters.get(token, "¶") if is_meant else otherwise
        for token, is_meant in zip(ids, meant, strict=True)
    )


# Whole rows, small enough to be read.


def test_the_row_of_the_module_is_as_it_says(tmp_path: Path, build: Build) -> None:
    dataset = build(["78956", "34"])
    plan = plan_of(tmp_path / "plan", dataset, [[(0, 0, 3), (1, 0, 3)]], sequence_length=7)
    aligned, following = (rows_of(dataset, plan, labels) for labels in CONVENTIONS)
    assert shown_ids(aligned) == shown_ids(following) == ["78934._"]
    assert shown_labels(aligned) == ["-89-4.-"]
    assert shown_labels(following) == ["8954.--"]
    assert shown_positions(aligned) == shown_positions(following) == ["0120120"]
    assert aligned.ids.tolist() == [[23, 24, 25, 19, 20, 0, 0]]
    assert aligned.ids.dtype == aligned.labels.dtype == np.dtype("uint16")
    assert (aligned.aligned, following.aligned) == (True, False)


def test_the_tokens_at_cuts_and_the_padding_are_those_of_the_tokenizer(
    tmp_path: Path, tokenizer_path: Path, folders: Iterable[Path]
) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer_path))
    tokenizer.add_special_tokens(["<s>", "<pad>"])
    bos, pad = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("<pad>")
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", bos)])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    path = write_jsonl(tmp_path / "a.jsonl", ["12345"], no_loss=[[[0, 1]]])
    special = {"eos": "<|endoftext|>", "pad": "<pad>", "no_loss": "no_loss"}
    out = tmp_path / "out"
    built = tokenmill.build(path, tmp_path / "tokenizer.json", out, workers=1, **special)
    made_of = {"packing": "next-fit", "at_cuts": "bos-and-eos"}
    plan = planned(folders, built.dataset, sequence_length=4, **made_of)
    rows = rows_of(built.dataset, plan, "aligned")
    assert rows.ids.tolist() == [[bos, 17, 18, EOS], [bos, 19, 20, EOS], [bos, 21, EOS, pad]]
    assert shown_labels(rows) == ["--2-", "-34-", "-5.-"]
    assert shown_labels(rows_of(built.dataset, plan, "next")) == ["-23-", "-45-", "-.--"]
    assert shown_positions(rows) == ["0123", "0123", "0120"]


# All rows of a corpus.


def model_row(
    texts: list[list[int]],
    segments: list[Segment],
    options: PackOptions,
    labels: Labels,
    row_length: int,
    spans: list[list[tuple[int, int]]] | None = None,
) -> list[tuple[int, int | None, bool, bool]]:
    """Of every place: its id, its label, whether positions begin again, whether it is real."""
    both_ends = options.long_documents == "keep-both-ends"
    sliding = options.long_documents == "sliding-window"
    overlap = options.overlap if sliding and not options.overlap_in_loss else 0
    row: list[tuple[int, int | None, bool, bool]] = []
    for document, start, length in segments:
        tokens, stop = texts[document], start + length
        silent = (
            {place for a, b in (spans or {})[document] for place in range(a, b)} if spans else ()
        )
        has_bos = start > 0 and "bos" in options.at_cuts and not both_ends
        has_eos = stop < len(tokens) and "eos" in options.at_cuts and not both_ends

        def target(place: int) -> int | None:
            return None if place in silent else tokens[place]  # noqa: B023 - called in the loop

        part: list[tuple[int, int | None]] = [(EOS, None)] if has_bos else []
        for place in range(start, stop):
            label = None
            if labels == "aligned":
                repeated = start > 0 and place - start < overlap
                if (place > start or has_bos) and not repeated:
                    label = target(place)
            elif place + 1 < stop:
                repeated = start > 0 and place + 1 - start < overlap
                label = None if repeated else target(place + 1)
            elif stop < len(tokens) and not overlap:
                label = target(place + 1)
            part.append((tokens[place], label))
        part += [(EOS, None)] if has_eos else []
        joined = both_ends and start > 0 and len(row) > 0
        row += [(*pair, number == 0 and not joined, True) for number, pair in enumerate(part)]
        gap = -len(part) % options.segment_multiple
        row += [(EOS, None, number == 0, False) for number in range(gap)]
    begins = not row or row[-1][3]
    rest = row_length - len(row)
    return row + [(EOS, None, number == 0 and begins, False) for number in range(rest)]


def as_model(rows: Rows) -> list[list[tuple[int, int | None, bool, bool]]]:
    labels = [
        [label if has_label else None for label, has_label in zip(*row, strict=True)]
        for row in zip(rows.labels.tolist(), rows.has_label.tolist(), strict=True)
    ]
    columns = (rows.ids.tolist(), labels, rows.restarts.tolist(), rows.real.tolist())
    return [list(zip(*row, strict=True)) for row in zip(*columns, strict=True)]


def spans_of(dataset: Dataset) -> list[list[tuple[int, int]]]:
    return [
        [(span["start"], span["stop"]) for span in spans]
        for shard in dataset.shards
        for spans in shard.documents().column("no_loss").to_pylist()
    ]


SLIDING = {"long_documents": "sliding-window", "overlap": 5}
POLICIES: dict[str, dict[str, Any]] = {
    "split": {},
    "split, bos at cuts": {"at_cuts": "bos"},
    "split, eos at cuts": {"at_cuts": "eos"},
    "split, bos and eos at cuts": {"at_cuts": "bos-and-eos"},
    "split at lines": {"long_documents": "split-at-boundary", "split_at": "line", "slack": 12},
    "concat and chunk": {"packing": "concat-and-chunk"},
    "order preserving": {"packing": "order-preserving"},
    "windows": SLIDING,
    "windows in the loss": {**SLIDING, "overlap_in_loss": True},
    "windows without overlap": {"long_documents": "sliding-window"},
    "windows, bos and eos at cuts": {**SLIDING, "at_cuts": "bos-and-eos"},
    "keep start": {"long_documents": "keep-start"},
    "keep start, eos at cuts": {"long_documents": "keep-start", "at_cuts": "eos"},
    "keep end": {"long_documents": "keep-end"},
    "keep both ends": {"long_documents": "keep-both-ends"},
    "keep both ends, little of the start": {
        "long_documents": "keep-both-ends",
        "start_share": 0.15,
    },
    "keep both ends, all of the start": {"long_documents": "keep-both-ends", "start_share": 1.0},
    "keep both ends, nothing of the start": {
        "long_documents": "keep-both-ends",
        "start_share": 0.0,
    },
    "drop": {"long_documents": "drop"},
    "padded segments": {"segment_multiple": 4},
    "padded segments, bos and eos at cuts": {"segment_multiple": 4, "at_cuts": "bos-and-eos"},
    "padded rows": {"sequence_multiple": 16},
    "few segments": {"max_segments": 2},
    "all shards together": {"window": "global"},
    "windows of shards": {"window_sequences": 40},
    "balanced": {"packing": "balanced", "ranks": 4},
    "streaming": {"packing": "streaming", "open_sequences": 8},
    "optimal": {"packing": "optimal"},
}


@pytest.mark.parametrize("labels", CONVENTIONS)
@pytest.mark.parametrize("corpus", ["several_shards", "with_spans"])
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())
def test_every_row_is_that_of_the_model(
    policy: dict[str, Any],
    corpus: str,
    labels: Labels,
    request: pytest.FixtureRequest,
    folders: Iterable[Path],
) -> None:
    dataset: Dataset = request.getfixturevalue(corpus)
    plan = planned(folders, dataset, sequence_length=40, **policy)
    options = PackOptions(sequence_length=40, **policy)
    row_length = 48 if policy == POLICIES["padded rows"] else 40
    texts = documents(dataset.folder)
    spans = spans_of(dataset) if corpus == "with_spans" else None
    rows = RowReader(dataset, plan, labels).read(np.arange(len(plan)), row_length)
    assert as_model(rows) == [
        model_row(texts, plan.segments(number), options, labels, row_length, spans)
        for number in range(len(plan))
    ]


def arrays_read(reader: RowReader, by: str) -> list[tuple[str, list[Any]]]:
    """Every row that Python or compiled code assembles, and its segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreted, "_steps_taken", {})
        patch.setattr(interpreted, "_steps_expected", 0)
        if by == "Python":
            patch.setattr(interpreted, "MOST_STEPS", 10**9)
            patch.setattr(interpreted, "STEPS_OF_A_COMPILATION", 10**9)
        else:
            patch.setattr(interpreted, "MOST_STEPS", 0)
            patch.setattr(interpreted, "STEPS_OF_A_COMPILATION", 0)
        rows, layout = reader.read_layout(np.arange(len(reader.plan)), 40)
        segments = rows.segmentation
        arrays = (
            rows.ids,
            rows.labels,
            rows.flags,
            *dataclasses.astuple(layout),
            segments.edges,
            segments.positions,
        )
    return [(array.dtype.str, array.tolist()) for array in arrays]


@pytest.mark.parametrize("labels", CONVENTIONS)
@pytest.mark.parametrize(
    "policy", ["windows, bos and eos at cuts", "padded segments", "concat and chunk"]
)
def test_python_assembles_the_rows_of_compiled_code(
    policy: str, labels: Labels, several_shards: Dataset, folders: Iterable[Path]
) -> None:
    plan = planned(folders, several_shards, sequence_length=40, **POLICIES[policy])
    by_python, by_code = (
        arrays_read(RowReader(several_shards, plan, labels), by) for by in ("Python", "compiled")
    )
    assert by_python == by_code


# What always holds, counted over pairs of tokens and without a model of rows.


def pairs_trained(rows: Rows) -> Counter[tuple[int, int]]:
    """How often each token is the label of each other one, in the convention "next"."""
    places = rows.has_label
    return Counter(zip(rows.ids[places].tolist(), rows.labels[places].tolist(), strict=True))


def pairs_inside(texts: list[list[int]]) -> Counter[tuple[int, int]]:
    """How often each token follows each other one in a document."""
    return Counter(pair for text in texts for pair in pairwise(text))


@st.composite
def lossless_options(draw: st.DrawFn) -> dict[str, Any]:
    """Options by which every token is packed."""
    packing = draw(st.sampled_from(["best-fit", "next-fit", "concat-and-chunk", "streaming"]))
    options: dict[str, Any] = {
        "packing": packing,
        "sequence_length": draw(st.integers(5, 20)) * 4,
        "window": draw(st.sampled_from(["local", "global"])),
        "window_sequences": 20,
        "max_segments": draw(st.none() | st.integers(1, 4)),
        "sequence_multiple": draw(st.sampled_from([1, 16])),
    }
    if packing != "concat-and-chunk":
        policy = draw(st.sampled_from(["split", "split-at-boundary", "sliding-window"]))
        options |= {
            "long_documents": policy,
            "overlap": draw(st.integers(0, 17)) if policy == "sliding-window" else 0,
            "at_cuts": draw(st.sampled_from(["nothing", "bos", "eos", "bos-and-eos"])),
            "segment_multiple": draw(st.sampled_from([1, 4])),
            "split_at": "line",
        }
    return options


@settings(max_examples=30, deadline=None)
@given(options=lossless_options())
def test_every_transition_of_a_document_is_trained_exactly_once(
    options: dict[str, Any], several_shards: Dataset, folders: Iterable[Path]
) -> None:
    plan = planned(folders, several_shards, **options)
    rows = rows_of(several_shards, plan, "next")
    expected = pairs_inside(documents(several_shards.folder))
    assert pairs_trained(rows) == expected
    assert pairs_trained(shortened(rows, rows.ids.shape[1] // 4)) == expected
    assert not rows.has_label[~rows.real].any()


def test_sequences_that_do_not_exist_are_refused(build: Build, folders: Iterable[Path]) -> None:
    dataset = build(["123"])
    reader = RowReader(dataset, planned(folders, dataset, sequence_length=4))
    for sequence in (-1, 1):
        with pytest.raises(UserError, match="the sequence does not exist"):
            reader.read(np.array([sequence]), 4)


# Plans that do not fit.


@pytest.mark.parametrize(
    ("segments", "why"),
    [
        ([(0, 0, 7)], "a segment reaches outside its document"),
        ([(0, 4, 2), (0, 5, 2)], "a segment reaches outside its document"),
        ([(1, 2**32 - 1, 1)], "a segment reaches outside its document"),
        ([(2, 0, 1)], "it names documents that do not exist"),
        ([(2**32 - 1, 0, 1)], "it names documents that do not exist"),
        ([(0, 0, 6), (0, 0, 3)], "a sequence is longer than its row of 8 tokens"),
    ],
)
@pytest.mark.parametrize("labels", CONVENTIONS)
def test_a_segment_that_does_not_exist_or_fit_is_named_as_damage(
    labels: Labels, segments: list[Segment], why: str, tmp_path: Path, build: Build
) -> None:
    dataset = build(["12345", "67"])
    plan = plan_of(tmp_path / "plan", dataset, [[(1, 0, 3)], segments], sequence_length=8)
    with pytest.raises(VerificationError) as caught:
        rows_of(dataset, plan, labels)
    assert caught.value.what == "a plan does not match its dataset"
    assert caught.value.why == why
    assert caught.value.where == str(tmp_path / "plan")
    assert shown_ids(RowReader(dataset, plan).read(np.array([0]), 8)) == ["67._____"]


def test_a_plan_of_another_dataset_is_refused(tmp_path: Path, build: Build) -> None:
    one, other = build(["12345"]), build(["54321"])
    plan = plan_of(tmp_path / "plan", one, [[(0, 0, 2)]], sequence_length=8)
    with pytest.raises(UserError, match="the plan belongs to a different dataset"):
        RowReader(other, plan)

"""What a run has given: counted from plans, and equal to what a training loop recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loading_kit import write_tokenizer
from resume_kit import through_json, write_corpora

import tokenmill
from conftest import random_trials, write_jsonl
from tokenmill import Dataset
from tokenmill.core.errors import UserError
from tokenmill.load.batches import Batches
from tokenmill.load.rows.provenance import SegmentOrigin
from tokenmill.load.steps.mixture import MixtureSource
from tokenmill.reports.given_data import Amount
from view_kit import view_of

SEED = 5
PLANS = ["packed", "buckets", "one piece a row", "cut"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three datasets, and a view of every third document of the first."""
    folder = tmp_path_factory.mktemp("corpora")
    found = dict(zip("abc", write_corpora(folder)[3], strict=True))
    parent = tokenmill.open(found["a"])
    view = view_of(folder / "view", [parent], range(0, parent.num_documents, 3), "every third")
    options: dict[str, Any] = {"sequence_length": 16, "overlap": 4, "window_sequences": 8}
    for each in (*found.values(), view):
        tokenmill.pack(each, name="cut", long_documents="sliding-window", **options)
    tokenmill.pack(view, name="packed", sequence_length=16)
    return {**found, "v": folder / "view"}


def amount_of(origins: Iterable[SegmentOrigin]) -> Amount:
    """What segments hold, one token at a time."""
    tokens = [
        (each.record["dataset"], each.document, token)
        for each in origins
        for token in range(each.start, each.start + each.length)
    ]
    lengths = {(each.record["dataset"], each.document): each.document_tokens for each in origins}
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for *document, _ in set(tokens):
        counts[tuple(document)] += 1
    whole = sum(count == lengths[document] for document, count in counts.items())
    return Amount(len(counts), whole, len(set(tokens)), len(tokens))


def train(batches: Batches, steps: int, recorded: list[SegmentOrigin]) -> dict[str, Any]:
    """Take steps, record all segments, and return the state."""
    locations = [Path(each["location"]) for each in batches.state_dict()["sources"]]
    roots = [str(tokenmill.open(each).roots[0].folder) for each in locations]
    for _ in range(steps):
        if batches.global_batch(batches.step) is None:
            break
        for each in batches.explain(batches.step):
            each.record["dataset"] = roots[each.plan]
            recorded.append(each)
        assert batches.advance() is not None
    return through_json(batches.state_dict())


def check(state: dict[str, Any], recorded: list[SegmentOrigin]) -> None:
    """Compare all amounts with those that were recorded."""
    found = tokenmill.provenance(state)
    by_source, by_input = defaultdict(list), defaultdict(list)
    for each in recorded:
        by_source[each.plan].append(each)
        by_input[each.record["dataset"], each.record["source"]].append(each)
    assert found.amount == amount_of(recorded)
    assert [each.amount for each in found.sources] == [
        amount_of(by_source[number]) for number in range(len(state["sources"]))
    ]
    assert {(each.dataset, each.name): each.amount for each in found.inputs} == {
        key: amount_of(origins) for key, origins in by_input.items()
    }
    for source in found.sources:
        assert source.question == (["every third"] if source.name == "v" else [])
        if source.question:
            out = [
                each
                for each in recorded
                if each.document % 3 and each.record["dataset"].count("large")
            ]
            assert source.left_out_given == amount_of(out).documents


@st.composite
def legs(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from("abcv"), min_size=1, max_size=3, unique=True))
    shares = [draw(st.sampled_from([0.0, 0.1, 1.0, 2.5])) for _ in names]
    shares[0] = shares[0] or 1.0
    return {
        "plan": draw(st.sampled_from(["packed", "cut"])),
        "names": names,
        "shares": shares,
        "size": draw(st.sampled_from([12, 24, ((0, 12), (3, 24), (7, 4))])),
        "steps": draw(st.integers(1, 12)),
    }


@random_trials(10, 300, chain=st.lists(legs(), min_size=1, max_size=4))
def test_what_mixtures_give_is_what_the_training_recorded(
    chain: list[dict[str, Any]], folders: dict[str, Path]
) -> None:
    recorded: list[SegmentOrigin] = []
    state: dict[str, Any] = {}
    for leg in chain:
        sources = [
            MixtureSource.of(folders[name], leg["plan"], epochs=None, name=name, share=share)
            for name, share in zip(leg["names"], leg["shares"], strict=True)
        ]
        if state:
            state = tokenmill.amend(state, sources=sources, global_batch_size=leg["size"])
        batches = tokenmill.mix_batches(sources, global_batch_size=leg["size"], seed=SEED)
        batches.load_state_dict(state or batches.state_dict())
        state = train(batches, leg["steps"], recorded)
    check(state, recorded)


@settings(max_examples=25, deadline=None)
@given(
    chain=st.lists(st.tuples(st.sampled_from(PLANS), st.integers(1, 12)), min_size=1, max_size=4),
    shuffle=st.sampled_from(["global", "blocks", "none"]),
)
def test_what_plans_give_is_what_the_training_recorded(
    chain: list[tuple[str, int]], shuffle: str, folders: dict[str, Path]
) -> None:
    dataset = tokenmill.open(folders["a"])
    recorded: list[SegmentOrigin] = []
    state: dict[str, Any] = {}
    for plan, steps in chain:
        state = tokenmill.amend(state, plan=plan) if state else state
        options: dict[str, Any] = {"global_batch_size": 24, "seed": SEED, "epochs": None}
        batches = dataset.batches(plan, shuffle=shuffle, **options)
        batches.load_state_dict(state or batches.state_dict())
        state = train(batches, steps, recorded)
    check(state, recorded)


# By column, and as a statement.


@pytest.fixture
def licensed(tmp_path: Path) -> Dataset:
    """Documents of 2, 3, 4 and 5 tokens, in rows of 5; the last one has no licence."""
    path = write_jsonl(
        tmp_path / "texts.jsonl", ["1", "22", "333", "4444"],
        license=["cc-by", "cc0", "cc-by", None], id=["a", "b", "c", "d"],
    )  # fmt: skip
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    options: dict[str, Any] = {"workers": 1, "eos": "<eos>", "pad": "<pad>", "keep": ["license"]}
    dataset = tokenmill.build(path, tokenizer, tmp_path / "corpus", **options).dataset
    tokenmill.pack(dataset, name="rows", sequence_length=5, packing="next-fit")
    return dataset


def state_after(dataset: Dataset, steps: int) -> dict[str, Any]:
    """The state after steps of one row, in the order of the documents."""
    batches = dataset.batches("rows", global_batch_size=1, shuffle="none", epochs=2)
    for _ in range(steps):
        assert batches.advance() is not None
    return through_json(batches.state_dict())


def test_amounts_are_counted_by_a_kept_column(licensed: Dataset) -> None:
    found = tokenmill.provenance(state_after(licensed, 4), by="license")
    assert found.amount == Amount(4, 4, 14, 19)
    assert found.values == {
        "cc-by": Amount(2, 2, 6, 8),
        "cc0": Amount(1, 1, 3, 6),
        "(not kept)": Amount(1, 1, 5, 5),
    }
    (source,) = found.sources
    assert (source.rows, round(source.epochs, 2), source.first_step) == (4, 1.33, 0)
    with pytest.raises(UserError, match="no dataset has the column 'lang'") as error:
        tokenmill.provenance(state_after(licensed, 4), by="lang")
    assert error.value.why == "they keep license"


def test_before_the_first_step_nothing_was_given(licensed: Dataset) -> None:
    found = tokenmill.provenance(state_after(licensed, 0))
    assert (found.amount, found.inputs, found.values) == (Amount(), [], {})


def test_what_a_view_takes_out_of_the_rest_of_a_run_is_said(
    licensed: Dataset, tmp_path: Path
) -> None:
    """Of documents a, b, c and d, the run gives a and b; then a and c are taken out."""
    state = state_after(licensed, 1)
    view = view_of(tmp_path / "view", [licensed], {1, 3}, "agreed to")
    tokenmill.pack(view, name="rest", sequence_length=5, packing="next-fit", rest_of=state)
    state = tokenmill.amend(state, plan="rest", dataset=view)
    batches = view.batches("rest", global_batch_size=1, shuffle="none")
    batches.load_state_dict(state)
    assert batches.advance() is not None
    found = tokenmill.provenance(batches.state_dict())
    assert found.amount == Amount(3, 3, 10, 10)
    whole, rest = found.sources
    assert (whole.question, whole.left_out, whole.taken_out) == ([], 0, 0)
    assert (rest.left_out, rest.left_out_tokens, rest.left_out_given) == (2, 6, 1)
    assert (rest.taken_out, rest.taken_out_tokens) == (1, 4)
    assert (
        "- view, from step 1 on: 2 documents with 6 tokens by: agreed to; parts of 1 of them "
        "were given before or by other sources; taken out of the rest of an epoch: 1 with 4 tokens"
    ) in found.statement().splitlines()


def test_data_that_has_moved_is_named(licensed: Dataset, tmp_path: Path) -> None:
    state = state_after(licensed, 3)
    moved = licensed.folder.rename(tmp_path / "moved")
    with pytest.raises(UserError, match="a dataset of the state is missing"):
        tokenmill.provenance(state)
    assert tokenmill.provenance(state, datasets=[moved]).amount == Amount(4, 4, 14, 14)


def test_a_statement_says_what_went_in_and_what_is_not_known(licensed: Dataset) -> None:
    found = tokenmill.provenance(state_after(licensed, 4), by="license")
    lines = found.statement().splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# Training data",
        "## 1. General information",
        "## 2. Data sources",
        "### Datasets",
        "### Inputs",
        "### By license",
        "### In training",
        "## 3. Data processing",
        "### Taken out",
        "### Changes during training",
        "## 4. Left to the author",
    ]
    assert "- Size: 19 tokens, 14 of them distinct, of 4 documents" in lines
    assert "| texts.jsonl | 4 | 4 | 14 | 19 |" in lines
    assert "| cc-by | 2 | 2 | 6 | 8 |" in lines
    assert "- nothing" in lines
    html = found._repr_html_()
    assert "19 tokens before step 4" in html
    assert html.count("<tr>") == 6
    manifest = licensed.manifest
    assert f"- Tokenizer: huggingface, SHA-256 `{manifest.tokenizer.sha256}`" in lines
    assert f"| {licensed.location} | `{manifest.dataset_id}` | 4 | 14 |" in lines

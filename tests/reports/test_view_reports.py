"""Commands that show datasets show of a view the chosen documents, and where they come from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tokenmill
from conftest import Printed
from load.loading_kit import write_tokenizer
from tokenmill import Dataset
from tokenmill.cli import main
from tokenmill.core.errors import UserError, VerificationError
from tokenmill.reports import samples
from view_kit import built, view_of

TEXTS = {"a.jsonl": ["123", "4", "56"], "b.jsonl": ["7", "8"]}
MORE = {"a.jsonl": ["11", "2222", "3"]}


@pytest.fixture
def parents(tmp_path: Path) -> list[Dataset]:
    """Documents 0 to 4, of two sources in one shard, and 5 to 7 in the other dataset."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    places = [tmp_path / "old", tmp_path / "new"]
    for place in places:
        place.mkdir()
    return [built(places[0], tokenizer, TEXTS), built(places[1], tokenizer, MORE)]


@pytest.fixture
def view(tmp_path: Path, parents: list[Dataset]) -> Dataset:
    """4<eos>, 56<eos>, 11<eos>, 2222<eos>; nothing of the second file."""
    return view_of(tmp_path / "view", parents, [1, 2, 5, 6], "even ones")


def run(*arguments: object) -> int:
    return main([str(each) for each in arguments])


def test_inspect_shows_the_question_the_parents_and_the_first_and_last_chosen_document(
    view: Dataset, parents: list[Dataset], capsys: Printed
) -> None:
    assert run("inspect", view.folder) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        f"       view  {view.folder} (id {view.manifest.dataset_id})",
        "     chosen  even ones",
        f"       from  {parents[0].folder} (5 documents)",
        f"       from  {parents[1].folder} (3 documents)",
        "  documents  4 in 2 shards",
        "     tokens  13 as uint16, 3 per document",
    ]
    assert [line for line in lines if line.startswith(("document", "  "))][-6:] == [
        "document 1",
        "     begins  4 <eos>",
        "       ends  4 <eos>",
        "document 6",
        "     begins  2 2 2 2 <eos>",
        "       ends  2 2 2 2 <eos>",
    ]
    assert "2 to 3   75.0%" in "\n".join(lines)
    assert run("inspect", view.folder, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["view"] == {
        "question": ["even ones"],
        "parents": [[str(parents[0].folder), 5], [str(parents[1].folder), 3]],
    }
    assert run("inspect", view.folder, "--document", 0) == 2
    assert "the view leaves it out: even ones" in capsys.readouterr().err


def test_lengths_tokens_and_documents_are_those_of_the_view(view: Dataset, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    analysis = tokenmill.analyze(view.folder, sequence_lengths=[4])
    assert (analysis.documents, analysis.tokens) == (4, 13)
    found = tokenmill.report(view, page)
    assert "even ones" in page.read_text()
    assert found.view is not None
    assert found.view.question == ["even ones"]
    assert [[each.low, each.documents] for each in found.length_bins if each.documents] == [
        [2, 1],
        [3, 2],
        [5, 1],
    ]
    assert [each.number for each in found.documents] == [1, 2, 5, 6]
    assert found.comparison is not None
    assert found.comparison.documents == 4
    counts = samples.token_histogram(view, 1000)
    assert counts[:7].tolist() == [4, 2, 4, 0, 1, 1, 1]
    assert samples.token_histogram(view, 1)[2] in (0, 4)  # whole documents
    assert samples.sampled_lengths(view, 1).documents <= 4
    card = view._repr_html_()
    assert "<strong>View</strong>" in card
    assert "even ones" in card


def test_subsets_of_a_view_are_counted_among_the_chosen(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "tokenizer.json")
    texts = {"a.jsonl": [str(number).replace("0", "9") for number in range(1, 60)]}
    dataset = built(tmp_path, tokenizer, texts, validation=0.4)
    held_out = dataset.shards[0].documents(["subset"]).column("subset").to_pylist()
    first, last = held_out.index("validation"), 58 - held_out[::-1].index("train")
    view = view_of(tmp_path / "view", [dataset], [first, last])
    from tokenmill.reports.contents import count_subsets

    counts = {name: each.documents for name, each in count_subsets(view).items()}
    assert counts == {"train": 1, "validation": 1}


def test_a_view_has_no_sources_of_its_own_to_count(
    view: Dataset, tmp_path: Path, capsys: Printed
) -> None:
    with pytest.raises(UserError, match="a view has no sources of its own"):
        tokenmill.count_words(view.folder, tmp_path / "counts")
    assert run("tokenizer", "report", view.folder, "--on", view.folder) == 2
    assert "a view has no sources of its own" in capsys.readouterr().err


def test_a_missing_or_changed_parent_is_named_with_its_view(
    view: Dataset, parents: list[Dataset], tmp_path: Path, capsys: Printed
) -> None:
    moved = tmp_path / "moved"
    parents[0].folder.rename(moved)
    with pytest.raises(UserError, match="a dataset of the view is missing") as missing:
        tokenmill.open(view.folder)
    assert missing.value.where == str(view.folder)
    assert missing.value.why == f"the view takes documents from {parents[0].folder}"
    for command in ("inspect", "analyze", "verify", "report"):
        assert run(command, view.folder) == 2
        assert str(parents[0].folder) in capsys.readouterr().err
    parents[1].folder.rename(parents[0].folder)
    with pytest.raises(VerificationError, match="a view is damaged") as changed:
        tokenmill.open(view.folder)
    assert changed.value.where == str(view.folder / "view.json")
    assert changed.value.why == (
        f"{parents[0].folder} is dataset {parents[1].manifest.dataset_id}; "
        f"it needs {parents[0].manifest.dataset_id}"
    )


def test_a_view_opens_through_a_link_to_its_folder(view: Dataset, tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    link = tmp_path / "elsewhere" / "deep" / "link"
    link.symlink_to(view.folder)
    assert tokenmill.open(link).num_documents == 4
    assert np.array_equal(tokenmill.open(link).shards[0].chosen, [1, 2])

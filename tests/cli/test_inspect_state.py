"""The steps of a training run and the spikes of its loss, from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from corpora import tokenmill_here

import tokenmill
from conftest import write_jsonl

TEXTS = ["Z" * (1 + number % 3) for number in range(60)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A state at step 25 of rows with a document each: 2 a step, and from step 10 on 6."""
    folder = tmp_path_factory.mktemp("run")
    files = [write_jsonl(folder / f"{name}.jsonl", TEXTS) for name in "ab"]
    dataset = tokenmill.build(files, tokenizer_path, folder / "corpus", workers=1).dataset
    options: dict[str, Any] = {"packing": "next-fit", "max_segments": 1}
    tokenmill.pack(dataset, name="rows", sequence_length=4, **options)
    order: dict[str, Any] = {"shuffle": "none", "even_attention": False}
    batches = dataset.batches("rows", global_batch_size=2, rank=0, world_size=2, **order)
    for _ in range(10):
        assert batches.advance() is not None
    state = tokenmill.amend(batches.state_dict(), global_batch_size=6)
    batches = dataset.batches("rows", global_batch_size=6, rank=0, world_size=1, **order)
    batches.load_state_dict(state)
    for _ in range(15):
        assert batches.advance() is not None
    (folder / "state.json").write_text(json.dumps(batches.state_dict()))
    return folder


@pytest.fixture(autouse=True)
def inside(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run)


def told(*words: object) -> str:
    done = tokenmill_here("inspect", "state.json", *words)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(*words: object) -> str:
    done = tokenmill_here("inspect", *words)
    assert done.returncode == 2
    return done.stderr


def test_a_state_shows_the_legs_of_its_run(run: Path) -> None:
    assert told().splitlines() == [
        "       state  state.json, at step 25",
        "      step 0  corpus (plan rows); 2 rows in a global batch",
        "     step 10  corpus (plan rows); 6 rows in a global batch",
        f"      source  corpus: plan rows of {run / 'corpus'}, 110 rows given",
        "        next  step 25, with 1 rank so far",
        "",
        "next: tokenmill inspect state.json --step 24",
        "  or: tokenmill provenance state.json",
    ]
    assert json.loads(told("--json")) == json.loads(Path("state.json").read_text())


def test_the_state_of_a_curriculum_shows_what_it_says(tmp_path: Path) -> None:
    dataset = tokenmill.open("corpus")
    plan = tokenmill.open_plan(dataset)
    curriculum = tokenmill.Curriculum.of_plan(plan, dataset, 2)
    state = tmp_path / "state.json"
    state.write_text(json.dumps(dataset.batches(plan, curriculum=curriculum).state_dict(3)))
    done = tokenmill_here("inspect", state)
    assert done.stdout.splitlines()[-1] == "        next  step 3, with 1 rank so far"
    assert "given" not in done.stdout
    assert "cannot open the run of a curriculum" in refused(state, "--step", "1")


def test_a_step_shows_its_rows_by_rank_decoded() -> None:
    assert told("--step", "1").splitlines() == [
        "step 1: 2 rows for 2 ranks; leg from step 0: corpus (plan rows); 2 rows in a global batch",
        "",
        "rank 0, row 0: corpus, plan rows, sequence 2, epoch 0",
        "== document 2, all of 4 tokens; a.jsonl, position 29",
        "⟪Z⟫ZZ⟦<|endoftext|>⟧",
        "-- 0 of 4 tokens are padding   ⟦end or beginning of a document⟧  ⟪no loss⟫",
        "",
        "rank 1, row 0: corpus, plan rows, sequence 3, epoch 0",
        "== document 3, all of 2 tokens; a.jsonl, position 45",
        "⟪Z⟫⟦<|endoftext|>⟧",
        "-- 2 of 4 tokens are padding   ⟦end or beginning of a document⟧  ⟪no loss⟫",
    ]


def test_a_step_is_dealt_to_other_ranks_and_shown_for_one() -> None:
    def rows(*words: object) -> list[tuple[int, ...]]:
        found = json.loads(told("--step", "10", "--json", *words))
        assert found["leg"] == "leg from step 10: corpus (plan rows); 6 rows in a global batch"
        return [tuple(row[name] for name in ("rank", "row", "sequence")) for row in found["rows"]]

    assert rows() == [(0, row, 20 + row) for row in range(6)]
    assert sorted(sequence for *_, sequence in rows("--ranks", "2")) == [*range(20, 26)]
    of_one = rows("--ranks", "2", "--rank", "1")
    assert of_one == rows("--ranks", "2")[3:]
    assert [place[:2] for place in of_one] == [(1, 0), (1, 1), (1, 2)]


def test_only_some_rows_are_shown_unless_all_are_wanted() -> None:
    text = told("--step", "12")
    assert text.count("\nrank ") == 4
    assert text.endswith("\n... 2 more rows: add --all to see every row\n")
    text = told("--step", "12", "--all")
    assert text.count("\nrank ") == 6
    assert "add --all" not in text


@pytest.mark.parametrize("option", ["--step", "--losses"])
def test_options_of_states_and_datasets_are_not_mixed_up(option: str) -> None:
    assert "these options need a state" in refused("corpus", option, "1")
    assert "need a dataset" in refused("state.json", "--document", "1")
    assert "--rank and --ranks need --step" in refused("state.json", "--rank", "1")
    assert "cannot be combined" in refused("state.json", "--step", "1", "--losses", "x")
    assert "there is no rank 2" in refused("state.json", "--step", "1", "--rank", "2")
    assert "cannot divide step 1" in refused("state.json", "--step", "1", "--ranks", "3")
    assert "step 999 does not exist" in refused("state.json", "--step", "999")
    assert "the state is no JSON" in refused("a.jsonl", "--step", "1")


def test_spikes_name_the_inputs_of_their_documents() -> None:
    losses = [{"step": step, "loss": 2.0 + step % 3 / 10} for step in range(1, 41)]
    losses[15]["loss"] = 9.0  # of step 15 of the loader, which has rows 50 to 55
    losses[22]["loss"] = 4.0
    Path("run.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in losses) + "oh\n")
    text = told("--losses", "run.jsonl", "--first-step", "1")
    assert text.splitlines()[:3] == [
        "      losses  25, of steps 0 to 24 of the loader",
        "     outside  15 logged steps that the state does not have",
        "     damaged  1 line: line 41: no JSON: Expecting value: line 1 column 1 (char 0)",
    ]
    found = json.loads(told("--losses", "run.jsonl", "--first-step", "1", "--json"))
    assert [(each["step"], each["data_of"], each["inputs"]) for each in found["spikes"]] == [
        (15, [15], [["a.jsonl", 18]]),
        (22, [22], [["b.jsonl", 18]]),
    ]
    lines = text.splitlines()
    assert lines[5:7] == [
        "step 15: loss 9, 46.5 deviations above 2.1",
        "    from a.jsonl (18 tokens)",
    ]
    assert lines[-1] == "next: tokenmill inspect state.json --step 15"

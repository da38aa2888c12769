"""Plans from the command line and from recipes: what a user types, sees and gets back."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from corpora import contents

import tokenmill
from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.core.installed import install_command
from tokenmill.packing.options import Packing, PackOptions
from tokenmill.read import units
from tokenmill.run.recipe.checks import (
    load_recipe,
    make_recipe,
    override,
)
from tokenmill.store.dataset import Dataset
from tokenmill.store.plan import open_plan

STRATEGIES = get_args(Packing)


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of 3,000 bytes become a shard each: no two of them go into a unit."""
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 4 << 10)


def write_shards(folder: Path, *shards: list[int]) -> Path:
    """Files with documents of so many tokens: a Z is one, and so is the end."""
    folder.mkdir(parents=True)
    for number, lengths in enumerate(shards):
        path = folder / f"{number}.jsonl"
        write_jsonl(path, ["Z" * (length - 1) for length in lengths])
        path.write_bytes(path.read_bytes().ljust(3000, b"\n"))
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    folder = tmp_path_factory.mktemp("built")
    data = write_shards(folder / "data", [3, 5], [2, 10])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(units, "MIN_UNIT_BYTES", 4 << 10)
        tokenmill.build(data, tokenizer_path, folder / "out", workers=1)
    return folder


@pytest.fixture
def dataset(built: Path, tmp_path: Path) -> Path:
    """Two shards of documents of 3 and 5, and of 2 and 10 tokens."""
    for name in ("data", "out"):
        shutil.copytree(built / name, tmp_path / name)
    return tmp_path / "out"


def tokenmill_pack(*arguments: object) -> int:
    return main(["pack", *map(str, arguments)])


def plan_names(dataset: Path) -> list[str]:
    return sorted(path.name for path in dataset.glob("plans/*"))


def facts(text: str) -> dict[str, str]:
    """Lines of a name and what is said of it."""
    return {line[:12].strip(): line[14:] for line in text.splitlines() if line[12:14] == "  "}


# tokenmill pack


def test_packing_tells_what_the_plan_is_like(dataset: Path, capsys: Printed) -> None:
    assert tokenmill_pack(dataset, "--sequence-length", 8, "--verbose") == 0
    out, err = capsys.readouterr()
    found = facts(out)
    plan = open_plan(Dataset(dataset), "best-fit-8")
    assert found["plan"] == f"{dataset}/plans/best-fit-8 (id {plan.manifest.plan_id})"
    assert found["strategy"] == "best-fit, long documents: split"
    assert found["documents"] == "4 with 20 tokens"
    assert found["segments"] == "1.67 per sequence, at most 2"
    assert found["fill"] == "83.3333%"
    assert found["bound"] == "at least 3 sequences (this plan: +0.0000%)"
    assert found["locality"] == "costs 0 sequences (0.0000% padding) compared to a single window"
    assert "left out" not in found
    assert "lost" not in found
    assert "nothing to do" not in out
    assert err == ""


def test_one_token_of_padding_is_one_and_a_sequence_of_one_token_is_refused(
    dataset: Path, capsys: Printed
) -> None:
    assert tokenmill_pack(dataset, "--sequence-length", 21) == 0
    sequences = facts(capsys.readouterr().out)["sequences"]
    assert sequences == "1 of 21 tokens, 95.24% full; 1 token of padding"
    assert tokenmill_pack(dataset, "--sequence-length", 1) == 2
    valid = "a whole number, at least 2 and at most 16777216, or none"
    assert capsys.readouterr().err == (
        f"tokenmill: --sequence-length: got '1'; must be {valid}; one token leaves none to "
        "predict\n  next: tokenmill pack --help-all lists every option\n"
    )


def test_a_plan_is_described_in_plain_words(dataset: Path, capsys: Printed) -> None:
    assert tokenmill_pack(dataset, "--sequence-length", 8) == 0
    plan = open_plan(Dataset(dataset), "best-fit-8")
    assert capsys.readouterr().out == (
        f"        plan  {dataset}/plans/best-fit-8 (id {plan.manifest.plan_id})\n"
        "   documents  4 with 20 tokens\n"
        "   sequences  3 of 8 tokens, 83.33% full; 4 tokens of padding\n"
        "         cut  1 document in 1 place; only documents longer than a sequence are cut\n"
        f"\nnext: tokenmill inspect {dataset} --plan best-fit-8\n"
    )
    assert tokenmill_pack(dataset, "--sequence-length", 16) == 0
    assert facts(capsys.readouterr().out)["cut"] == "no document"
    cutting = ("--sequence-length", 6, "--packing", "concat-and-chunk")
    assert tokenmill_pack(dataset, *cutting) == 0
    avoidable = facts(capsys.readouterr().out)["cut"]
    assert avoidable == "2 documents in 3 places; 2 of these cuts could be avoided (see --compare)"


def test_packing_tells_what_is_lost_left_out_repeated_and_set(
    tmp_path: Path, tokenizer_path: Path, capsys: Printed
) -> None:
    data = write_shards(tmp_path / "data", [3, 5, 20])
    tokenmill.build(data, tokenizer_path, tmp_path / "out", workers=1)
    common = (tmp_path / "out", "--sequence-length", 8, "--plan-out")
    capsys.readouterr()
    tokenmill_pack(*common, tmp_path / "a", "--long-documents", "drop")
    assert facts(capsys.readouterr().out)["lost"] == "20 tokens of 1 document: dropped"
    tokenmill_pack(*common, tmp_path / "b", "--long-documents", "keep-start")
    assert facts(capsys.readouterr().out)["lost"] == "12 tokens of 1 document: end removed"
    tokenmill_pack(*common, tmp_path / "c", "--long-documents", "sliding-window", "--overlap", 2)
    repeated = facts(capsys.readouterr().out)["repeated"]
    assert repeated == "4 tokens, because windows overlap"
    tokenmill_pack(*common, tmp_path / "d", "--at-cuts", "eos")
    assert facts(capsys.readouterr().out)["set at cuts"] == "2 tokens"
    tokenmill_pack(*common, tmp_path / "e", "--weight-by", "source", "--weight", "0.jsonl=2")
    assert facts(capsys.readouterr().out)["documents"] == "6 with 56 tokens"


def test_the_same_command_again_has_nothing_to_do(dataset: Path, capsys: Printed) -> None:
    """Its JSON is the same, and may name a folder in any encoding."""
    odd = str(dataset.parent / "caf\udce9")
    command = (dataset, "--sequence-length", 8, "--plan-out", odd)
    assert tokenmill_pack(*command, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    plan = open_plan(Dataset(dataset), odd)
    assert found["plan_id"] == plan.manifest.plan_id
    assert found["already_there"] is False
    assert found["figures"] == plan.manifest.figures
    before = contents(dataset.parent)
    assert tokenmill_pack(*command, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {**found, "already_there": True}
    assert tokenmill_pack(*command) == 0
    again = capsys.readouterr().out
    assert again.splitlines()[0] == "nothing to do: the plan is complete"
    assert facts(again)["documents"] == "4 with 20 tokens"
    assert contents(dataset.parent) == before


def test_flags_become_options_of_the_plan(dataset: Path) -> None:
    options = {
        "packing": "next-fit", "long_documents": "split-at-boundary", "slack": 3,
        "split_at": "line", "at_cuts": "eos", "max_segments": 2, "segment_multiple": 2,
        "ranks": 4, "sequence_multiple": 16, "window": "local", "window_sequences": 7,
        "subset": "train", "separate_by": "source", "weight_by": "subset",
    }  # fmt: skip
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    flags += ["--sequence-length=8", "--weight=train=1.5", "--name=mine"]
    assert tokenmill_pack(dataset, *flags) == 0
    found = open_plan(Dataset(dataset), "mine").manifest.options
    defaults = PackOptions(sequence_length=8).stored()
    assert found == {**defaults, **options, "weight": ["train=1.5"]}


@pytest.mark.parametrize("name", ["../mine", "/mine", "mine/", ".mine", ".."])
def test_a_name_is_no_path(name: str, dataset: Path, tmp_path: Path, capsys: Printed) -> None:
    before = contents(tmp_path)
    assert tokenmill_pack(dataset, "--sequence-length", 8, "--name", name) == 2
    assert "a plan cannot have this name" in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_another_plan_is_a_conflict_until_it_is_to_be_overwritten(
    dataset: Path, capsys: Printed
) -> None:
    arguments = (dataset, "--sequence-length", 8)
    assert tokenmill_pack(*arguments) == 0
    assert tokenmill_pack(*arguments, "--at-cuts", "eos") == 4
    assert "its options differ" in capsys.readouterr().err
    assert tokenmill_pack(*arguments, "--at-cuts", "eos", "--overwrite") == 0
    assert open_plan(Dataset(dataset), "best-fit-8").manifest.options["at_cuts"] == "eos"


def test_a_folder_that_is_no_plan_is_a_conflict(dataset: Path, capsys: Printed) -> None:
    for place in (dataset, dataset.parent / "data"):
        arguments = ("--sequence-length", 8, "--plan-out", place, "--overwrite")
        assert tokenmill_pack(dataset, *arguments) == 4
        assert "not part of a plan" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--sequence-length", "8"], "cannot find a dataset"),
        (["out"], "--sequence-length: is missing"),
        (["out", "--sequence-length", "0"], "--sequence-length: got '0'"),
        (["out", "--sequence-length", "8", "--subset", "test"], "other subset"),
        (["out", "--sequence-length", "8", "--separate-by", "lang"], "no column 'lang'"),
        (["out", "--sequence-length", "8", "--weight", "a=1"], "together with --weight-by"),
        (["out", "--compare"], "--sequence-length: is missing"),
    ],
)
def test_user_mistakes_end_with_code_2_and_leave_no_plan(
    arguments: list[str], said: str, dataset: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.chdir(dataset.parent)
    assert tokenmill_pack(*arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith("tokenmill: "), said in err) == ("", True, True)
    assert "Traceback" not in err
    assert plan_names(dataset) == []


# tokenmill pack --compare


def compared(dataset: Path, capsys: Printed, *arguments: object) -> list[list[str]]:
    """The paragraphs of a comparison: the table, its legend, and what is recommended."""
    assert tokenmill_pack(dataset, "--sequence-length", 8, "--compare", *arguments) == 0
    return [part.splitlines() for part in capsys.readouterr().out.split("\n\n")]


def test_a_comparison_has_a_line_for_every_strategy_explains_and_writes_nothing(
    dataset: Path, capsys: Printed
) -> None:
    before = contents(dataset)
    (header, *lines), legend, recommendation = compared(dataset, capsys, "--ranks", 2)
    columns = "strategy sequences fill cuts avoidable lost segments imbalance gap seconds"
    assert header.split() == columns.split()
    assert sorted(line.split()[0].rstrip(":") for line in lines) == sorted(STRATEGIES)
    (best_fit,) = [line.split() for line in lines if line.startswith("best-fit ")]
    assert best_fit[1:3] == ["3", "83.3333%"]
    assert best_fit[3:7] == ["1", "0", "0", "1.67"]
    assert best_fit[8] == "+0.0000%"
    explained = {line.split()[0] for line in legend}
    assert explained == set(header.split()) - {"strategy", "sequences", "seconds"}
    assert "  imbalance  highest attention cost of 2 ranks divided by the mean, per step" in legend
    assert (
        "        gap  row tokens compared to 3 sequences, the least without avoidable cuts; "
        "only avoidable cuts can make it negative" in legend
    )
    assert recommendation == [
        "recommended  best-fit. It loses no token, makes no avoidable cut, and 16.67% is padding."
    ]
    assert contents(dataset) == before
    assert not (dataset / "plans").exists()


def test_strategies_that_cannot_come_last_with_what_they_object(
    dataset: Path, capsys: Printed
) -> None:
    (_, *lines), _, _ = compared(dataset, capsys, "--at-cuts", "eos")
    assert lines[-3:] == [
        f"{name}: --at-cuts: {name} cuts documents anywhere and adds no tokens there{more}"
        for name, more in (
            ("order-preserving", ""),
            ("concat-and-chunk", ""),
            ("length-buckets", "; --smallest-bucket: is longer than a sequence"),
        )
    ]


def test_a_strategy_whose_package_is_missing_has_a_row_that_says_how_to_install_it(
    dataset: Path, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)  # as if it were not installed
    (_, *lines), _, _ = compared(dataset, capsys)
    install = install_command("optimal")
    assert f"optimal: needs the extra optimal: {install}" in lines


def test_a_comparison_as_json(dataset: Path, capsys: Printed) -> None:
    arguments = ("--sequence-length", 8, "--compare", "--json")
    assert tokenmill_pack(dataset, *arguments) == 0
    found = {row["packing"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(found) == list(STRATEGIES)
    assert found["best-fit"]["figures"]["sequences"] == 3
    assert found["length-buckets"]["figures"] is None
    assert found["length-buckets"]["objection"] == "--smallest-bucket: is longer than a sequence"


# tokenmill pack --rest-of


def write_state(dataset: Path, step: int) -> Path:
    """A loader's state in the plan best-fit-8, whose three sequences come in order, one a step."""
    tokenmill_pack(dataset, "--sequence-length", 8)
    batches = tokenmill.open(dataset).batches("best-fit-8", batch_size=1, shuffle="none")
    path = dataset.parent / "state.json"
    path.write_text(json.dumps(batches.state_dict(step)))
    return path


def test_the_rest_of_an_epoch_is_planned_and_described(dataset: Path, capsys: Printed) -> None:
    """Sequences: documents 0 and 1; 2 and the end of 3; the beginning of 3."""
    state = write_state(dataset, 1)
    assert open_plan(Dataset(dataset), "best-fit-8").segments(0) == [(0, 0, 3), (1, 0, 5)]
    capsys.readouterr()
    arguments = (dataset, "--sequence-length", 16, "--rest-of", state)
    assert tokenmill_pack(*arguments) == 0
    plan = open_plan(Dataset(dataset), "best-fit-16-rest")
    assert [plan.segments(row) for row in range(len(plan))] == [[(2, 0, 2), (3, 0, 10)]]
    assert capsys.readouterr().out == (
        f"        plan  {dataset}/plans/best-fit-16-rest (id {plan.manifest.plan_id})\n"
        "     rest of  best-fit-8, after 1 sequence of epoch 0\n"
        "   documents  2 with 12 tokens\n"
        "    left out  2 documents with 8 tokens: given already\n"
        "   sequences  1 of 16 tokens, 75.00% full; 4 tokens of padding\n"
        "         cut  no document\n"
        f"\nnext: tokenmill inspect {dataset} --plan best-fit-16-rest\n"
    )
    assert tokenmill_pack(*arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["already_there"]
    assert found["rest_of"] == {
        "plan": open_plan(Dataset(dataset), "best-fit-8").manifest.plan_id,
        "name": "best-fit-8",
        "dataset": Dataset(dataset).manifest.dataset_id,
        "seed": 0,
        "shuffle": "none",
        "epoch": 0,
        "rows": [1],
    }
    assert tokenmill_pack(*arguments, "--compare", "--json") == 0
    figures = [row["figures"] for row in json.loads(capsys.readouterr().out)]
    assert {each["tokens"] for each in figures if each} == {12}


def test_of_an_epoch_that_is_over_the_next_one_is_the_rest(dataset: Path, capsys: Printed) -> None:
    state = write_state(dataset, 3)
    capsys.readouterr()
    assert tokenmill_pack(dataset, "--sequence-length", 16, "--rest-of", state) == 0
    found = facts(capsys.readouterr().out)
    assert found["rest of"] == "best-fit-8, all of epoch 1, of which nothing was given yet"
    assert found["documents"] == "4 with 20 tokens"


def test_options_of_a_rest_need_a_state(dataset: Path, capsys: Printed) -> None:
    for flag in ("--source", "--rest-dataset"):
        assert tokenmill_pack(dataset, "--sequence-length", 16, flag, "0") == 2
        assert "--source and --rest-dataset need --rest-of" in capsys.readouterr().err
    missing = dataset.parent / "missing.json"
    assert tokenmill_pack(dataset, "--sequence-length", 16, "--rest-of", missing) == 2
    assert str(missing) in capsys.readouterr().err
    assert plan_names(dataset) == []


# The section `pack` of a recipe.

REQUIRED: dict[str, Any] = {"inputs": ["a.jsonl"], "tokenizer": "t.json", "out": "o"}


def test_a_recipe_may_say_how_to_pack(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(
        "inputs: [a.jsonl]\ntokenizer: t.json\nout: o\nread:\n  keep: lang\n"
        "pack:\n  sequence_length: 4096\n  long_documents: keep-both-ends\n"
        "  start_share: 25%\n  weight_by: lang\n  weight: de=2\n"
    )
    recipe = make_recipe(override(load_recipe(path), ["pack.ranks=4", "pack.slack=null"]))
    assert recipe.pack == PackOptions(
        sequence_length=4096,
        long_documents="keep-both-ends",
        start_share=0.25,
        weight_by="lang",
        weight=["de=2"],
        ranks=4,
    )


# tokenmill build --sequence-length


@pytest.fixture
def build_arguments(tmp_path: Path, tokenizer_path: Path) -> list[str]:
    data = write_shards(tmp_path / "data", [3, 5], [2, 10])
    out = tmp_path / "out"
    return ["build", str(data), "--tokenizer", str(tokenizer_path), "--out", str(out)]


def test_a_recipe_on_disk_and_flags_make_the_same_plan(
    build_arguments: list[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("pack: {sequence_length: 4, packing: next-fit}\nresources: {workers: 1}\n")
    more = ["--config", str(recipe), "--set", "pack.at_cuts=eos", "--sequence-length", "8"]
    assert main([*build_arguments, *more]) == 0
    flags = ("--sequence-length", 8, "--packing", "next-fit", "--at-cuts", "eos")
    assert tokenmill_pack(tmp_path / "out", *flags, "--plan-out", tmp_path / "plan") == 0
    assert contents(tmp_path / "plan") == contents(tmp_path / "out" / "plans" / "next-fit-8")

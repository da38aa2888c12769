"""tokenmill export: what a user types, sees and gets back."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import tokenmill
from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import UserError
from tokenmill.packing.options import PackOptions
from tokenmill.packing.planning import pack


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Ten documents of four tokens, planned as ten rows of 4 and as five of 8."""
    folder = tmp_path_factory.mktemp("built")
    texts = [f"{number}" * 3 for number in range(10)]
    path = write_jsonl(folder / "a.jsonl", texts, score=range(10), name=["x"] * 10)
    out = folder / "corpus"
    report = tokenmill.build(path, tokenizer_path, out, workers=1, keep=["score", "name"])
    for length in (4, 8):
        pack(report.dataset, PackOptions(sequence_length=length))
    return out


def ids_of(folder: Path) -> list[list[int]]:
    return [
        row
        for path in sorted(folder.glob("*.parquet"))
        for row in pq.read_table(path).column("input_ids").to_pylist()
    ]


def test_a_plan_is_exported_and_summed_up(built: Path, tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "rows"
    assert main(["export", str(built), "--plan", "best-fit-4", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    size = sum(path.stat().st_size for path in out.glob("*.parquet"))
    assert printed.out == (
        f"10 rows in 1 file, {size:,} bytes\n"
        "columns: input_ids uint16, position_ids int32; padding id 0\n"
        "labels are left out: input_ids, but -100 where position_ids is 0 and in padding\n"
        "to write them, add --with-labels\n"
    )
    assert printed.err == ""
    assert sorted(ids_of(out)) == [[16 + number] * 3 + [0] for number in range(10)]


def test_mds_is_summed_up_with_the_name_that_its_column_has(
    built: Path, tmp_path: Path, capsys: Printed
) -> None:
    arguments = ["--plan", "best-fit-4", "--out", str(tmp_path / "rows"), "--format", "mds"]
    assert main(["export", str(built), *arguments]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "columns: tokens int32; padding id 0"


def test_the_only_plan_of_a_dataset_need_not_be_named(
    built: Path, tmp_path: Path, capsys: Printed
) -> None:
    assert main(["export", str(built), "--out", str(tmp_path / "rows")]) == 2
    assert capsys.readouterr().err == (
        "tokenmill: the dataset has several plans\n"
        f"  where: {built}\n"
        "  why: they are best-fit-4, best-fit-8\n"
        "  next: choose one, for example --plan best-fit-4, or plan='best-fit-4' in Python\n"
    )
    with pytest.raises(UserError) as caught:
        tokenmill.open_plan(built)
    assert caught.value.hint == "choose one, for example name='best-fit-4'"
    copied = tmp_path / "copied"
    shutil.copytree(built, copied)
    shutil.rmtree(copied / "plans" / "best-fit-4")
    assert main(["export", str(copied), "--out", str(tmp_path / "a")]) == 0
    assert len(ids_of(tmp_path / "a")) == 5
    assert tokenmill.export(copied, tmp_path / "b").num_sequences == 5
    assert len(tokenmill.open_plan(copied)) == len(tokenmill.open_plan(built, "best-fit-8")) == 5


def test_every_option_arrives(built: Path, tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "rows"
    given = "--format npy --labels next --sequences-per-file 3 --max-sequences 7 --seed 9"
    given += " --order-by score --bands 10 --columns input_ids,labels --json"
    command = ["export", str(built), "--plan", "best-fit-4", "--out", str(out), *given.split()]
    assert main(command) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["options"] == {
        "format": "npy",
        "columns": ["input_ids", "labels"],
        "labels": "next",
        "sequences_per_file": 3,
        "max_sequences": 7,
        "seed": 9,
        "order_by": "score",
        "bands": 10,
    }
    assert printed["num_sequences"] == 7
    record = json.loads((out / "export.json").read_text())
    assert printed == {"event": "finished", **record}
    assert (printed["format"], printed["format_version"]) == ("tokenmill-rows", 1)
    names = [f"rows-4-{number:05d}.input_ids.npy" for number in range(3)]
    assert [file["name"] for file in printed["files"]][::2] == names
    rows = np.concatenate([np.load(out / name) for name in names])
    assert rows.tolist() == [[16 + number] * 3 + [0] for number in range(7)]


def test_an_attention_mask_beside_several_documents_is_warned_of(
    built: Path, tmp_path: Path
) -> None:
    options = ["--columns", "input_ids,labels,position_ids,attention_mask", "--out"]
    alone = ["export", str(built), "--plan", "best-fit-4", *options, str(tmp_path / "alone")]
    assert main(alone) == 0  # here, a warning would be an error
    several = ["export", str(built), "--plan", "best-fit-8", *options, str(tmp_path / "several")]
    command = [sys.executable, "-m", "tokenmill", *several]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "documents attend to each other" in ended.stderr


# Mistakes.


@pytest.mark.parametrize(
    ("option", "parts"),
    [
        ("--sequences-per-file 0", ["--sequences-per-file: got '0'", "at least 1"]),
        ("--columns input_ids,loss", ["--columns: got 'input_ids,loss'", "one or several of"]),
        ("--columns ,", ["--columns: got ','", "one or several of"]),
        ("--seed -1", ["--seed: got '-1'", "at least 0"]),
        ("--order-by quality", ["no column 'quality'", "score", "--keep"]),
        ("--order-by name", ["the column 'name' does not contain numbers"]),
    ],
)
def test_a_wrong_value_is_named(
    option: str, parts: list[str], built: Path, tmp_path: Path, capsys: Printed
) -> None:
    command = ["export", str(built), "--plan", "best-fit-4", "--out", str(tmp_path / "rows")]
    assert main([*command, *option.split()]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("tokenmill: ")
    assert all(part in printed.err for part in parts), printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--seed", "--bands", "--max-sequences", "--sequences-per-file"])
@pytest.mark.parametrize("value", [2**62, 10**30])
def test_a_number_of_any_size_is_taken_or_refused(
    value: int, option: str, built: Path, tmp_path: Path, capsys: Printed
) -> None:
    out = tmp_path / "rows"
    command = ["export", str(built), "--plan", "best-fit-4", "--out", str(out)]
    code = main([*command, "--order-by", "score", option, str(value)])
    assert "a bug" not in capsys.readouterr().err
    assert code in (0, 2)
    if code == 0:
        expected = [[16 + number] * 3 + [0] for number in range(10)]
        assert ids_of(out) == expected


@pytest.mark.parametrize("name", ["best-fit-16", "..", "x", ".hidden"])
def test_an_unknown_plan_names_the_plans_there_are(
    name: str, built: Path, tmp_path: Path, capsys: Printed
) -> None:
    command = ["export", str(built), "--plan", name, "--out", str(tmp_path / "rows")]
    assert main(command) == 2
    assert capsys.readouterr().err == (
        f"tokenmill: cannot find the plan {name!r}\n"
        f"  where: {built / 'plans'}\n"
        "  why: the dataset has best-fit-4, best-fit-8\n"
        "  next: choose one of these, or create one with tokenmill pack\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_without_plans_says_so(
    tmp_path: Path, tokenizer_path: Path, capsys: Printed
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["one"])
    tokenmill.build(path, tokenizer_path, tmp_path / "corpus", workers=1)
    out = str(tmp_path / "rows")
    assert main(["export", str(tmp_path / "corpus"), "--plan", "best-fit-4", "--out", out]) == 2
    assert "why: the dataset has no plans\n" in capsys.readouterr().err

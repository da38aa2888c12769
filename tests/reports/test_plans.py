"""Plans are verified, and shown to people: what is in them, and how a sequence reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import tokenmill
from conftest import Printed, write_jsonl
from packing_kit import reseal_plan
from tokenmill.cli import main
from tokenmill.core.errors import VerificationError
from tokenmill.store.arrays import ArrayFile


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Documents of 4, 4, 8 and 2 tokens (digits and an end) in sequences of 5."""
    folder = tmp_path_factory.mktemp("packed")
    path = write_jsonl(folder / "a.jsonl", ["123", "456", "7890123", "4"])
    tokenmill.build(path, tokenizer_path, folder / "out", workers=1, sequence_length=5)
    return folder / "out"


@pytest.fixture
def dataset(packed: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    shutil.copytree(packed, tmp_path / "out")
    return tmp_path / "out"


def rewrite(dataset: Path, name: str, values: list[int]) -> None:
    """Change an array of the plan together with all its digests."""
    plan = dataset / "plans" / "best-fit-5"
    file = ArrayFile(plan / f"{name}.npy", "<i8" if name == "offsets" else "<u4")
    file.append(np.array(values))
    file.finish()
    reseal_plan(plan)


def test_verify_counts_the_plans(dataset: Path) -> None:
    assert tokenmill.verify(dataset).plans == 1
    tokenmill.pack(dataset, sequence_length=9, name="mine")
    assert tokenmill.verify(dataset).plans == 2


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("documents", [0, 1, 2, 2, 4], "a segment belongs to a document outside its window"),
        ("starts", [0, 1, 0, 5, 0], "a segment reaches outside its document"),
        ("lengths", [4, 4, 5, 3, 0], "a segment reaches outside its document"),
        ("lengths", [4, 4, 5, 2, 2], "its tokens differ from its figures"),
        ("offsets", [0, 1, 1, 3, 5], "a sequence has no segment"),
        ("offsets", [0, 1, 2, 2, 5], "a sequence has no segment"),
    ],
)
def test_what_a_plan_must_not_say_is_found(
    name: str, values: list[int], problem: str, dataset: Path
) -> None:
    rewrite(dataset, name, values)
    with pytest.raises(VerificationError, match="the dataset is intact") as caught:
        tokenmill.verify(dataset)
    assert caught.value.why == f"best-fit-5: {problem}"
    assert caught.value.hint == "plan again with tokenmill pack --overwrite"


def test_all_damaged_plans_are_named(dataset: Path) -> None:
    for name in ("a", "b"):
        folder = tokenmill.pack(dataset, sequence_length=9, name=name).plan.folder
        data = bytearray((folder / "starts.npy").read_bytes())
        data[-1] ^= 1
        (folder / "starts.npy").write_bytes(data)
    with pytest.raises(VerificationError, match="2 of its plans are damaged") as caught:
        tokenmill.verify(dataset)
    assert caught.value.why.split() == "a: the digest of starts.npy differs".split() + (
        "b: the digest of starts.npy differs".split()
    )


def test_inspect_shows_a_plan(packed: Path, capsys: Printed) -> None:
    assert main(["inspect", str(packed), "--plan", "best-fit-5"]) == 0
    shown = capsys.readouterr().out
    assert "4 of 5 tokens" in shown


def test_inspect_gives_plans_and_sequences_to_machines(packed: Path, capsys: Printed) -> None:
    assert main(["inspect", str(packed), "--plan", "best-fit-5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["figures"]["sequences"] == 4
    arguments = ["--plan", "best-fit-5", "--sequence", "0", "--json"]
    assert main(["inspect", str(packed), *arguments]) == 0
    segments = json.loads(capsys.readouterr().out)["segments"]
    assert [segment["text"] for segment in segments] == ["123<|endoftext|>"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sequence", "0"], "--sequence needs --plan"),
        (["--plan", "best-fit-5", "--sequence", "4"], "cannot find sequence 4"),
        (["--plan", "best-fit-5", "--document", "0"], "give one of them"),
        (["--plan", "none"], "the dataset has best-fit-5"),
    ],
)
def test_inspect_refuses_what_it_cannot_show(
    arguments: list[str], said: str, packed: Path, capsys: Printed
) -> None:
    assert main(["inspect", str(packed), *arguments]) == 2
    assert said in capsys.readouterr().err

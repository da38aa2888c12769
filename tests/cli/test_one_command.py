"""From text to packed files of rows in one command, stopped and run again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from corpora import random_texts

import tokenmill
from conftest import Printed, write_jsonl
from hub_kit import FakeHub, parquet, serving
from tokenmill.cli import main
from tokenmill.core.errors import UserError
from tokenmill.store.exports import Format

RECIPE = """\
inputs: ["{data}"]
tokenizer: {tokenizer}
out: {folder}/corpus
resources: {{workers: 1}}
pack: {{sequence_length: 32}}
export:
  out: {folder}/rows
  format: pt
  columns: [input_ids]
  dtype: uint16
  sequences_per_file: 20
"""
KILLED = """
import os, signal, sys
from tokenmill.cli import main
from tokenmill.load.export.rows import exporting as rows
from tokenmill.packing import planning
from tokenmill.run.tasks import encode

owner, name, calls = {
    "publishing": (encode, "publish", 0),
    "packing": (planning, "row_format", 0),
    "exporting": (rows, "columns_of", 2),
}[sys.argv[1]]
really, left = getattr(owner, name), [None] * calls

def killed(*arguments, **options):
    left.pop() if left else os.kill(os.getpid(), signal.SIGKILL)
    return really(*arguments, **options)

setattr(owner, name, killed)
rows.FILES_AT_ONCE = 1
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A data set with the columns of FineWeb, on this machine."""
    texts = random_texts(300, seed=1)
    columns = {
        "id": [f"<urn:uuid:{number}>" for number in range(300)],
        "url": [f"https://example.org/{number}" for number in range(300)],
        "language_score": [0.9] * 300,
        "token_count": [10] * 300,
    }
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub" / "cache"))
        hub.commit("o/fineweb", {"sample/10BT/000_00000.parquet": parquet(texts, **columns)})
        yield hub


def recipe_for(folder: Path, data: object, tokenizer: Path) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(data=data, tokenizer=tokenizer, folder=folder))
    return path


def rows_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "rows").iterdir()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A corpus, `a.jsonl`, and the rows of it that one command makes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    data = write_jsonl(folder / "a.jsonl", random_texts(300, seed=1))
    assert main(["build", "--config", str(recipe_for(folder, data, tokenizer_path))]) == 0
    return folder


@pytest.mark.parametrize("point", ["publishing", "packing", "exporting"])
def test_a_kill_at_any_stage_leaves_no_trace_in_the_rows(
    point: str, undisturbed: Path, tmp_path: Path, tokenizer_path: Path, capsys: Printed
) -> None:
    recipe = recipe_for(tmp_path / "killed", undisturbed / "a.jsonl", tokenizer_path)
    command = ["build", "--config", str(recipe)]
    killed = subprocess.run([sys.executable, "-c", KILLED, point, *command], capture_output=True)
    assert killed.returncode == -9, killed.stderr.decode()
    assert not (tmp_path / "killed" / "rows").exists()
    assert main(command) == 0
    reused = "reused: 2 files of an interrupted export" in capsys.readouterr().out
    assert reused == (point == "exporting")
    assert rows_of(tmp_path / "killed") == rows_of(undisturbed)


def test_fineweb_becomes_packed_files_that_train_with_one_command(
    hub: FakeHub, tmp_path: Path, tokenizer_path: Path
) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    recipe = recipe_for(tmp_path, "hf://datasets/o/fineweb", tokenizer_path)
    assert main(["build", "--config", str(recipe)]) == 0
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(512, 16), torch.nn.Linear(16, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for path in sorted((tmp_path / "rows").glob("*.pt"))[:8]:
        ids = torch.load(path, weights_only=True, mmap=True)["input_ids"].long()
        loss = torch.nn.functional.cross_entropy(
            model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert all(0 < loss < 10 for loss in losses)
    assert losses[-1] < losses[0]


def test_the_same_command_again_has_nothing_to_do(
    tmp_path: Path, tokenizer_path: Path, capsys: Printed
) -> None:
    data = write_jsonl(tmp_path / "a.jsonl", ["one two", "three", "four five six"])
    flags = f"--tokenizer {tokenizer_path} --out {tmp_path}/corpus --workers 1 --sequence-length 8 "
    flags += f"--export-out {tmp_path}/rows --export-format npy --export-with-labels"
    command = ["build", str(data), *flags.split()]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert f"\nrows: {tmp_path}/rows\n" in first
    assert first.endswith(
        f"\nnext: tokenmill verify {tmp_path}/corpus\n  or: tokenmill inspect {tmp_path}/corpus\n"
    )
    assert first.count("next:") == 1
    assert main(command) == 0
    again = capsys.readouterr().out
    assert "the build is finished: the dataset is complete\n   documents  " in again
    assert f"\nrows: {tmp_path}/rows; nothing to do: the export is complete\n" in again

    other = [*command, "--export-labels", "next"]
    assert main(other) == 4
    error = capsys.readouterr().err.splitlines()[-3:]
    replacing = (
        f"tokenmill export {tmp_path}/corpus --plan best-fit-8 --out {tmp_path}/rows --format npy "
        "--with-labels --labels next --overwrite"
    )
    assert error == [
        f"  where: {tmp_path}/rows",
        "  why: labels: aligned, not next",
        f"  next: choose another folder, or replace it: {replacing}",
    ]
    assert main(replacing.split()[1:]) == 0
    assert main(other) == 0
    assert "nothing to do: the export is complete" in capsys.readouterr().out


def test_python_builds_packs_and_exports_each_subset(tmp_path: Path, tokenizer_path: Path) -> None:
    data = write_jsonl(tmp_path / "a.jsonl", random_texts(60, seed=2))
    told: list[tuple[str, int, int]] = []
    report = tokenmill.build(
        data,
        tokenizer_path,
        tmp_path / "corpus",
        events=tokenmill.BuildEvents(on_pack=lambda *stage: told.append(stage)),
        workers=1,
        validation=0.3,
        sequence_length=32,
        export={"out": tmp_path / "rows", "format": "npy", "columns": ["input_ids"]},
    )
    folders = [each.folder for each in report.exports]
    assert folders == [tmp_path / "rows" / "train", tmp_path / "rows" / "validation"]
    assert all((folder / "export.json").is_file() for folder in folders)
    assert told == [("packing", 60, 60), ("writing", 0, 1)] * 2


def test_what_an_export_lacks_is_said_before_the_start(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    data = write_jsonl(tmp_path / "a.jsonl", ["one"])
    with pytest.raises(UserError) as caught:
        tokenmill.build(
            data, tokenizer_path, tmp_path / "out", sequence_length=8, export={"format": "ptt"}
        )
    assert caught.value.why.splitlines() == [
        f"export.format: got 'ptt'; must be one of {', '.join(get_args(Format))}; did you mean pt?",
        "       export.out: is missing",
    ]
    with pytest.raises(UserError) as caught:
        tokenmill.build(data, tokenizer_path, tmp_path / "out", export={"out": "rows"})
    assert caught.value.why == "sequence_length: is missing; an export needs a plan"
    for out, problem in (
        (tmp_path, f"export.out: '{tmp_path}' is or contains the folder of the dataset"),
        ("s3://bucket/rows", "paths that begin with s3:// are not supported"),
    ):
        with pytest.raises(UserError) as caught:
            tokenmill.build(
                data, tokenizer_path, tmp_path / "out", sequence_length=8, export={"out": out}
            )
        assert caught.value.why == problem
    assert not (tmp_path / "out").exists()


def test_what_would_stop_the_export_stops_the_build_before_it_starts(
    tmp_path: Path, tokenizer_path: Path, capsys: Printed
) -> None:
    data = write_jsonl(tmp_path / "a.jsonl", ["one two three"])
    command = ["build", "--config", str(recipe_for(tmp_path, data, tokenizer_path))]
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "mine.txt").write_text("mine")
    assert main(command) == 4
    assert "the output folder already exists" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "recipe.yaml", "rows"]


def test_agents_refuse_an_export(tmp_path: Path, tokenizer_path: Path, capsys: Printed) -> None:
    recipe = recipe_for(tmp_path / "agents", "data.jsonl", tokenizer_path)
    assert main(["build", "--config", str(recipe), "--agent", "0/2"]) == 2
    assert "an export cannot be combined with --agent" in capsys.readouterr().err

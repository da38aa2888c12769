"""tokenmill rows, and a build of the same YAML."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import datasets
import pytest

from conftest import Printed
from tokenmill.cli import main
from tokenmill.cli.build import Build
from tokenmill.cli.parser import Parser
from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.run.recipe.options import Recipe

TEXTS = ["The quick brown fox.", "jumps", "", "over the lazy dog " * 20]


@pytest.fixture
def config(tmp_path: Path, tokenizer_path: Path) -> Path:
    path = tmp_path / "tokenizer.yaml"
    path.write_text(
        f"""
tokenizer:
  tokenizer_name: {tokenizer_path}
  context_length: 16
  show_progress: false
model:
  layers: 12
"""
    )
    return path


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text, "id": 1}) + "\n" for text in TEXTS))
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")


def rows(config: Path, dataset: Path, out: Path, *others: str) -> int:
    return main(
        ["rows", "--config", str(config), "--dataset", str(dataset), "--out", str(out), *others]
    )


def test_a_file_becomes_a_folder_that_load_from_disk_opens(
    config: Path, texts: Path, tmp_path: Path, capsys: Printed
) -> None:
    out = tmp_path / "rows"
    assert rows(config, texts, out) == 0
    first = capsys.readouterr()
    made = datasets.load_from_disk(str(out))["train"]
    assert made.column_names == ["input_ids", "attention_mask", "labels"]
    assert {len(row) for row in made["input_ids"]} == {16}
    assert f"4 documents -> {len(made)} rows" in first.out
    assert f'datasets.load_from_disk("{out}")' in first.out

    assert rows(config, texts, out, "--json") == 0  # opens what is there
    found = json.loads(capsys.readouterr().out)
    assert found["splits"] == {"train": len(made)}
    assert (found["documents"], found["rows"]) == (4, len(made))
    assert [Path(path).parent for path in found["reused"]] == [out / "train"]


def test_options_go_before_those_of_the_file(config: Path, texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "rows"
    options = "--packing best-fit --dtype int32 --columns input_ids,seq_lengths --split train"
    assert rows(config, texts, out, *options.split(), "--context-length", "32") == 0
    made = datasets.load_from_disk(str(out))
    assert made.column_names == ["input_ids", "seq_lengths"]
    assert made.features["input_ids"].feature.dtype == "int32"
    assert {sum(lengths) for lengths in made["seq_lengths"]} == {32}


def test_a_saved_dataset_keeps_its_splits(config: Path, tmp_path: Path) -> None:
    part = datasets.Dataset.from_dict({"text": TEXTS})
    splits = datasets.DatasetDict(train=part, test=part.select([1]))
    splits.save_to_disk(tmp_path / "saved")
    assert rows(config, tmp_path / "saved", tmp_path / "rows") == 0
    made = datasets.load_from_disk(str(tmp_path / "rows"))
    assert list(made) == ["train", "test"]
    assert len(made["test"]) == 1


def test_other_rows_are_replaced_only_when_asked(
    config: Path, texts: Path, tmp_path: Path, capsys: Printed
) -> None:
    out = tmp_path / "rows"
    rows(config, texts, out)
    assert rows(config, texts, out, "--dtype", "int32") == 4
    assert "--overwrite" in capsys.readouterr().err
    assert rows(config, texts, out, "--dtype", "int32", "--overwrite") == 0
    made = datasets.load_from_disk(str(out))["train"]
    assert made.features["labels"].feature.dtype == "int32"
    assert len(list((out / "train").glob("rows-*.arrow"))) == 1
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "train").mkdir()
    (tmp_path / "other" / "train" / "thesis.tex").touch()
    assert rows(config, texts, tmp_path / "other") == 4
    assert rows(config, texts, tmp_path / "other", "--overwrite") == 0
    assert (tmp_path / "other" / "train" / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "trian"], "cannot load the dataset"),
        (["--dtype", "int16"], "int16"),
        (["--context-length", "0"], "--context-length: got '0'"),
    ],
)
def test_mistakes_end_with_2(
    config: Path, texts: Path, tmp_path: Path, arguments: list[str], message: str, capsys: Printed
) -> None:
    code = rows(config, texts, tmp_path / "rows", *arguments)
    assert code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "rows").exists()


def test_datasets_that_are_not_there(config: Path, tmp_path: Path, capsys: Printed) -> None:
    (tmp_path / "page.html").write_text("<p>")
    assert rows(config, tmp_path / "page.html", tmp_path / "rows") == 2
    assert "supported extension" in capsys.readouterr().err
    assert rows(config, tmp_path / "nowhere.jsonl", tmp_path / "rows") == 2
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n{"text": ')
    assert rows(config, tmp_path / "bad.jsonl", tmp_path / "rows") == 3
    assert "cannot read the dataset" in capsys.readouterr().err


def recipe(config: Path, *others: str) -> Recipe:
    parsed = Parser("build", Build, "summary").read(
        ["data/", "--config", str(config), "--out", "o", *others]
    )
    assert parsed is not None
    assert isinstance(parsed[0], Build)
    return parsed[0].recipe("o")


def test_the_same_file_is_a_recipe(config: Path, tokenizer_path: Path) -> None:
    made = recipe(config)
    assert made.tokenizer == str(tokenizer_path)
    assert (made.pack.sequence_length, made.pack.packing) == (16, "best-fit")
    config.write_text(
        config.read_text().replace(
            "model:", "  overlap: 4\n  text_column: body\nlimits:\n  max_bad: 1%\nmodel:"
        )
    )
    made = recipe(config, "--sequence-length", "32", "--set", "tokenizer.packing=next-fit")
    assert (made.pack.sequence_length, made.pack.packing) == (32, "next-fit")
    assert (made.pack.long_documents, made.pack.overlap) == ("sliding-window", 4)
    assert made.pack.overlap_in_loss
    assert (made.read.text_field, made.limits.max_bad) == ("body", 0.01)


def test_a_length_that_is_not_given_is_that_of_the_tokenizer(
    config: Path,
    texts: Path,
    tmp_path: Path,
    tokenizer_path: Path,
    capsys: Printed,
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = tmp_path / "model"
    model.mkdir()
    shutil.copy(tokenizer_path, model)
    given = config.read_text()
    config.write_text(given.replace("  context_length: 16\n", "  overlap: 8\n"))
    with pytest.raises(UserError, match="context_length is missing") as caught:
        recipe(config, "--tokenizer", str(model))
    assert (caught.value.where, caught.value.hint) == (
        str(config),
        "add context_length: 4096 to the YAML, or --context-length 4096 to tokenmill rows",
    )
    assert recipe(config, "--sequence-length", "32").pack.sequence_length == 32
    capsys.readouterr()

    settings = {"model_max_length": 16, "eos_token": "<|endoftext|>"}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    said = "context_length 16, from model_max_length in tokenizer_config.json\n"
    assert recipe(config, "--tokenizer", str(model)).pack.sequence_length == 16
    assert capsys.readouterr().err == said
    assert rows(config, texts, tmp_path / "rows", "--tokenizer-name", str(model)) == 0
    assert said.strip() in caplog.messages
    made = datasets.load_from_disk(str(tmp_path / "rows"))["train"]
    assert {len(row) for row in made["input_ids"]} == {16}

    (model / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 8}))
    with pytest.raises(UserError, match="overlap: got 8; must be less than context_length"):
        recipe(config, "--tokenizer", str(model))


def test_a_build_refuses_what_it_cannot_do(config: Path) -> None:
    config.write_text(config.read_text().replace("model:", "  append_eos: false\nmodel:"))
    with pytest.raises(ValueError, match="a build does not support append_eos: false"):
        recipe(config)
    config.write_text("tokenizer:\n  contxt_length: 5\nmodel: {}\n")
    with pytest.raises(ValueError, match="did you mean context_length"):
        recipe(config)
    config.write_text("tokenizer: t.json\nmodel: {}\n")
    with pytest.raises(ValueError, match="model: unknown option"):
        recipe(config)


def test_without_datasets_the_extra_is_named(
    config: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Printed
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert rows(config, texts, tmp_path / "out") == 2
    assert install_command("hf") in capsys.readouterr().err

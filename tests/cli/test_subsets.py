"""A user sees each subset, and what another reader needs to leave the held-out documents out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from corpora import documents, tokenmill_here, write_corpus

import tokenmill as library
from tokenmill.core.errors import VerificationError
from tokenmill.reports.contents import SubsetCounts, count_subsets

FORMAT = Path(__file__).parents[2] / "docs" / "reference" / "format.md"


NOTE = (
    " note tokens/ holds both subsets. Plans leave validation out by default; other readers see "
    "it. To skip it there: each file in tokens/ has a table of the same name in documents/. Its "
    "rows are the documents in order, and its column `subset` is 'train' or 'validation'. "
)


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path
) -> tuple[Path, str, dict[str, dict[str, int]]]:
    """A dataset with a validation subset, the summary of its build, and what each subset holds."""
    folder = tmp_path_factory.mktemp("subsets")
    write_corpus(folder / "data", num_files=2, per_file=200)
    out = folder / "corpus"
    options = ["--tokenizer", tokenizer_path, "--out", out, "--validation", "0.1", "--workers", "1"]
    result = tokenmill_here("build", folder / "data", *options)
    assert result.returncode == 0, result.stderr
    dataset = library.open(out)
    names = np.array([name for s in dataset.shards for name in s.documents()["subset"].to_pylist()])
    lengths = np.concatenate([shard.lengths for shard in dataset.shards])
    expected = {
        name: {"documents": int((names == name).sum()), "tokens": int(lengths[names == name].sum())}
        for name in ("train", "validation")
    }
    assert expected["validation"]["documents"] > 10
    return out, result.stdout, expected


def test_the_summary_and_inspect_show_each_subset(
    built: tuple[Path, str, dict[str, dict[str, int]]],
) -> None:
    out, summary, expected = built
    inspected = tokenmill_here("inspect", out).stdout
    assert NOTE in " ".join(inspected.split())
    for shown in (summary, inspected):
        for name, counts in expected.items():
            line = f"{name}  {counts['documents']:,} documents, {counts['tokens']:,} tokens"
            assert line in shown


def test_machines_get_each_subset(built: tuple[Path, str, dict[str, dict[str, int]]]) -> None:
    out, _, expected = built
    assert json.loads(tokenmill_here("inspect", out, "--json").stdout)["subsets"] == expected
    recipe = json.loads((out / "run.json").read_text())["recipe"]
    again = ["--tokenizer", recipe["tokenizer"], "--out", out, "--validation", "0.1", "--json"]
    events = tokenmill_here("build", out.parent / "data", *again).stdout.splitlines()
    assert json.loads(events[-1])["subsets"] == expected


def test_the_snippet_of_the_docs_gives_the_documents_of_train(
    built: tuple[Path, str, dict[str, dict[str, int]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _, _ = built
    section = FORMAT.read_text().partition("### Leave out the validation subset")[2]
    snippet = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    monkeypatch.chdir(out.parent)
    names: dict[str, np.ndarray] = {}
    exec(snippet, names)
    shard = library.open(out).shards[0]
    rows = shard.documents()["subset"].to_pylist()
    assert names["train"].tolist() == [i for i, name in enumerate(rows) if name == "train"]
    assert names["train"].dtype == np.int32


def test_a_documents_table_of_another_size_is_a_damage(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=20)
    options = {"workers": 1, "validation": 0.5}
    dataset = library.build(tmp_path / "data", tokenizer_path, tmp_path / "out", **options).dataset
    counts = count_subsets(dataset)
    held_out = counts["validation"]
    assert counts["train"] == SubsetCounts(
        documents=len(documents(tmp_path / "out")) - held_out.documents,
        tokens=dataset.num_tokens - held_out.tokens,
    )
    path = dataset.shards[0].path("parquet")
    path.write_bytes(b"PAR1" + path.read_bytes()[4:-8] + bytes(8))
    with pytest.raises(VerificationError, match="documents table is damaged"):
        count_subsets(dataset)

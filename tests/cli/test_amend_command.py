"""Amending a run from the command line: what a user types, sees and gets back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from corpora import tokenmill_here

import tokenmill
from conftest import write_jsonl
from tokenmill.load.steps.mixture import MixtureSource


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Datasets `web` and `code` with plans of 8 and 16 tokens, and states at step 3."""
    folder = tmp_path_factory.mktemp("amended")
    for name in ("web", "code"):
        texts = write_jsonl(folder / f"{name}.jsonl", ["Z" * count for count in range(1, 90)])
        tokenmill.build(texts, tokenizer_path, folder / name, workers=1)
        for length in (8, 16):
            tokenmill.pack(folder / name, sequence_length=length, name=f"rows-{length}")
    web = tokenmill.open(folder / "web").batches("rows-8", global_batch_size=4)
    (folder / "alone.json").write_text(json.dumps(web.state_dict(3)))
    sources = [MixtureSource.of(folder / name, "rows-8", name=name) for name in ("web", "code")]
    mixed = tokenmill.mix_batches(sources, global_batch_size=4)
    (folder / "mixed.json").write_text(json.dumps(mixed.state_dict(3)))
    return folder


@pytest.fixture(autouse=True)
def inside(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(corpus)


def told(*arguments: object) -> list[str]:
    done = tokenmill_here("amend", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_shares_and_sizes_change_and_a_source_comes_and_ends(corpus: Path) -> None:
    assert told("mixed.json", "--out", "more.json", "--share", "code=0.25") == [
        "       state  more.json, at step 3",
        "      step 0  web 50.0% (plan rows-8), code 50.0% (plan rows-8); 4 rows in a global batch",
        "      step 3  web 80.0% (plan rows-8), code 20.0% (plan rows-8); 4 rows in a global batch",
    ]
    sources = [
        MixtureSource.of("web", "rows-8", name="web"),
        MixtureSource.of("code", "rows-8", name="code", share=0.25),
    ]
    more = tokenmill.mix_batches(sources, global_batch_size=4)
    more.load_state_dict(json.loads(Path("more.json").read_text()))
    Path("later.json").write_text(json.dumps(more.state_dict(5)))
    words = ("--end", "code", "--source", "math=code:rows-8", "--share", "math=50%")
    sizes = ("--global-batch-size", "0:8,7:1k")
    # It is the same plan, so it is the same source with another name.
    assert told("later.json", "--out", "last.json", *words, *sizes)[1:] == [
        "      step 0  web 50.0% (plan rows-8), math 50.0% (plan rows-8); 4 rows in a global batch",
        "      step 3  web 80.0% (plan rows-8), math 20.0% (plan rows-8); 4 rows in a global batch",
        "      step 5  web 66.7% (plan rows-8), math 33.3% (plan rows-8); 8 rows, then 1,000 rows "
        "in a global batch",
    ]


def test_a_run_of_one_plan_becomes_a_mixture(corpus: Path) -> None:
    words = ("--source", "code=code:rows-8")
    assert told("alone.json", "--out", "two.json", *words)[1:] == [
        "      step 0  web (plan rows-8); 4 rows in a global batch",
        "      step 3  web 50.0% (plan rows-8), code 50.0% (plan rows-8); 4 rows in a global batch",
    ]
    sources = [MixtureSource.of(name, "rows-8", name=name) for name in ("web", "code")]
    sources[0] = replace(sources[0], epochs=None)
    mixed = tokenmill.mix_batches(sources, global_batch_size=4)
    mixed.load_state_dict(json.loads(Path("two.json").read_text()))
    assert mixed.step == 3


def test_a_run_goes_on_with_another_plan(corpus: Path) -> None:
    assert told("alone.json", "--out", "long.json", "--plan", "rows-16")[1:] == [
        "      step 0  web (plan rows-8); 4 rows in a global batch",
        "      step 3  web (plan rows-16); 4 rows in a global batch",
    ]
    told("alone.json", "--out", "other.json", "--plan", "rows-16", "--dataset", "code")
    code = tokenmill.open("code").batches("rows-16", global_batch_size=4)
    code.load_state_dict(json.loads(Path("other.json").read_text()))
    web = tokenmill.open("web").batches("rows-8", global_batch_size=4)
    assert code.digest(2) == web.digest(2)
    values = json.loads("\n".join(told("alone.json", "--out", "j.json", "--global-batch-tokens",
                                       "64", "--json")))  # fmt: skip
    assert values == json.loads(Path("j.json").read_text())
    assert values["global_batch"] == {"tokens": 64}


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("alone.json --out x.json", "nothing to amend"),
        ("alone.json --out alone.json --global-batch-size 8", "the file of the state exists"),
        ("none.json --out x.json --global-batch-size 8", "cannot read the state"),
        ("web.jsonl --out x.json --global-batch-size 8", "the state is no JSON"),
        ("alone.json --out x.json --share web=1", "the run is no mixture"),
        ("mixed.json --out x.json --share web", "--share is no share"),
        ("mixed.json --out x.json --share web=-1", "a share must be between 0 and 1e+09"),
        ("mixed.json --out x.json --end math", "the run has no source 'math'"),
        ("mixed.json --out x.json --end web --end code", "no source is left"),
        ("mixed.json --out x.json --source web=code", "--source is no source"),
        (
            "mixed.json --out x.json --source web=web:rows-16",
            "the sources have rows of different lengths",
        ),
        ("mixed.json --out x.json --plan rows-16", "a mixture has no plan of its own"),
        ("alone.json --out x.json --global-batch-size 0", "--global-batch-size is no batch size"),
        (
            "alone.json --out x.json --global-batch-size 9:8",
            "the points of a batch size must be sorted by step",
        ),
    ],
)
def test_what_cannot_be_amended_is_refused(words: str, what: str, corpus: Path) -> None:
    done = tokenmill_here("amend", *words.split())
    assert (done.returncode, done.stdout) in [(2, ""), (4, "")]
    assert done.stderr.splitlines()[0] == f"tokenmill: {what}"
    assert not Path("x.json").exists()

"""An agent in an actor builds, and answers; without Ray."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tokenmill
from conftest import TEXTS, write_jsonl
from tokenmill.cli import main
from tokenmill.core.errors import OutputConflictError, TokenmillError, UserError
from tokenmill.core.installed import install_command
from tokenmill.run.job import versions
from tokenmill.run.ray_agents import AgentActor, Leaving, Order
from tokenmill.run.recipe.options import Recipe, ResourceOptions


@pytest.fixture(autouse=True)
def _own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # an agent changes it
    monkeypatch.setenv("TOKENMILL_JOB", "")


def order(folder: Path, tokenizer: Path, job: str = "") -> Order:
    recipe = Recipe(
        inputs=["a.jsonl"],
        tokenizer=str(tokenizer),
        out="corpus",
        resources=ResourceOptions(workers=1),
    )
    return Order(recipe=recipe, index=1, num_agents=3, folder=str(folder), job=job)


def error_of(actor: AgentActor, asked: Order) -> TokenmillError:
    leaving = actor.run(asked)
    assert isinstance(leaving, Leaving)
    assert leaving.error is not None
    assert leaving.dataset_id == ""
    return leaving.error.rebuild()


def test_an_agent_builds_in_the_folder_of_the_command(tmp_path: Path, tokenizer_path: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    write_jsonl(folder / "a.jsonl", TEXTS)
    actor = AgentActor()
    job = actor.run(order(folder, tokenizer_path))
    assert isinstance(job, str)
    leaving = actor.run(order(folder, tokenizer_path, job))
    manifest = tokenmill.open(folder / "corpus").manifest
    assert leaving == Leaving(
        dataset_id=manifest.dataset_id,
        documents=len(TEXTS),
        tokens=manifest.totals.tokens,
        shards=1,
    )
    assert actor.condition().total_bytes == (folder / "a.jsonl").stat().st_size


def test_an_agent_says_what_is_installed() -> None:
    assert AgentActor().greet() == (os.uname().nodename, versions())


def test_an_error_keeps_its_class_and_its_parts(tmp_path: Path, tokenizer_path: Path) -> None:
    error = error_of(AgentActor(), order(tmp_path, tokenizer_path))  # a.jsonl is missing
    assert isinstance(error, UserError)
    assert "a.jsonl" in str(error)


def test_a_node_without_the_folder_is_refused(tmp_path: Path, tokenizer_path: Path) -> None:
    error = error_of(AgentActor(), order(tmp_path / "elsewhere", tokenizer_path))
    assert isinstance(error, UserError)
    assert error.what == "a node does not have the folder in which the build was started"
    assert error.where.startswith(f"{tmp_path / 'elsewhere'} on ")


def test_a_node_whose_output_is_another_folder_is_refused(
    tmp_path: Path, tokenizer_path: Path
) -> None:
    write_jsonl(tmp_path / "a.jsonl", TEXTS)
    error = error_of(AgentActor(), order(tmp_path, tokenizer_path, job="of-the-first-agent"))
    assert isinstance(error, OutputConflictError)
    assert "a folder that all machines share" in error.hint
    assert not (tmp_path / "corpus" / "manifest.json").exists()


def test_a_machine_without_ray_says_how_to_install_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill.run.ray.version", _no_version)
    assert main(["build", "a.jsonl", "--tokenizer", "t", "--out", "c", "--on", "ray"]) == 2
    assert install_command("ray") in capsys.readouterr().err


@pytest.mark.parametrize("found", ["2.51.1", "1.13.0"])
def test_versions_of_ray_that_any_web_page_could_use_are_refused(
    found: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tokenmill.run.ray.version", lambda name: found)
    assert main(["build", "a.jsonl", "--tokenizer", "t", "--out", "c", "--on", "ray"]) == 2
    assert f"ray {found} is too old" in capsys.readouterr().err


def _no_version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)

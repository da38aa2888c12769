"""The completion scripts, in the shells themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tokenmill.cli import main

COMPLETED = [
    ("tokenmill bui", ["build"]),
    ("tokenmill build --packi", ["--packing"]),
    ("tokenmill build --packing best", ["best-fit"]),
    ("tokenmill tokenizer tr", ["train", "trim"]),
    ("tokenmill tokenizer train --model uni", ["unigram"]),
    ("tokenmill recipe s", ["schema"]),
    ("tokenmill completion b", ["bash"]),
    ("tokenmill bench t", ["tokenizers"]),
    ("tokenmill bench loader --st", ["--step-ms"]),
    ("tokenmill bench tokenizers --tokenizer tok", []),
    ("tokenmill build --format pa", ["parquet"]),
    ("tokenmill export --columns pos", ["position_ids"]),
    ("tokenmill --ver", ["--version"]),
    ("tokenmill tokenizer train --split tek", ["tekken"]),
    ("tokenmill analyze --model tiny", ["tinyllama-1.1b"]),
]


@pytest.fixture
def script(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The script of a shell, in a folder without other files."""
    path = tmp_path / f"completion.{request.param}"
    capture = request.getfixturevalue("capsys")
    assert main(["completion", request.param]) == 0
    path.write_text(capture.readouterr().out)
    return path


@pytest.mark.parametrize("script", ["bash"], indirect=True)
@pytest.mark.parametrize(
    ("typed", "words"),
    [
        *COMPLETED,
        ("tokenmill export --columns labels,pos", ["labels,position_ids"]),
        ("tokenmill build --packing = best", ["best-fit"]),  # bash cuts words at =
        ("tokenmill recipe --help = ", []),
        ("tokenmill build --packing=best", ["--packing=best-fit"]),  # zsh does not
    ],
)
def test_bash_completes(script: Path, typed: str, words: list[str]) -> None:
    asked = (
        f"source {script}; COMP_WORDS=({typed}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ));"
        "_tokenmill; echo ${COMPREPLY[@]}"
    )
    assert output("bash", "-c", asked, cwd=script.parent).split() == words


@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.parametrize(("typed", "words"), COMPLETED)
def test_fish_completes(script: Path, typed: str, words: list[str]) -> None:
    lines = output("fish", "-c", f"source {script}; complete -C '{typed}'", cwd=script.parent)
    assert [line.partition("\t")[0] for line in lines.splitlines()] == words


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_reads_the_script(script: Path) -> None:
    asked = f"autoload -Uz compinit; compinit -u -D; source {script}; print $_comps[tokenmill]"
    assert "-F _tokenmill" in output("zsh", "-f", "-c", asked, cwd=script.parent)


def output(shell: str, *arguments: str, cwd: Path) -> str:
    """What a shell prints; skips where it is not installed."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    home = {"HOME": str(cwd), "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        [shell, *arguments], cwd=cwd, env=home, check=True, capture_output=True, text=True
    ).stdout

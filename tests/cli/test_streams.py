"""Commands whose output nobody reads, or that have none: the exit code says what was done."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from corpora import command, write_corpus

import tokenmill


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """A corpus, a dataset of it with a plan, and a damaged dataset."""
    folder = tmp_path_factory.mktemp("streams")
    write_corpus(folder / "data", num_files=1, per_file=20)
    for name in ("dataset", "damaged"):
        tokenmill.build(folder / "data", tokenizer_path, folder / name, workers=1)
    tokenmill.pack(folder / "dataset", name="plan", sequence_length=64)
    tokens = folder / "damaged" / "tokens" / "00000000-000000.bin"
    tokens.write_bytes(bytes(len(tokens.read_bytes())))
    return folder


def code_of(*arguments: object, closing: str = "") -> int:
    """The exit code of a command whose standard output has no reader, or whose streams are closed.

    `closing` is for the shell, as `>&- 2>&-`.
    """
    reading, writing = os.pipe()
    os.close(reading)
    shell = ["bash", "-c", f'exec "$@" {closing}', "closed", *command(*arguments)]
    try:
        return subprocess.run(shell, stdout=writing, stderr=writing, timeout=120).returncode
    finally:
        os.close(writing)


@pytest.mark.parametrize(
    ("options", "closing"),
    [
        (("--json", "--workers", 1), ""),
        (("--workers", 2), ""),
        (("--json", "--workers", 2), "<&- >&- 2>&-"),
    ],
)
def test_a_build_whose_output_has_no_reader_or_is_closed_is_completed(
    options: tuple[object, ...], closing: str, folder: Path, tokenizer_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    build = ["build", folder / "data", "--tokenizer", tokenizer_path, "--out", out, *options]
    assert code_of(*build, closing=closing) == 0
    assert tokenmill.verify(out).documents > 0


@pytest.mark.parametrize("closing", ["", ">&- 2>&-"])
def test_damage_is_reported_to_nobody_with_its_exit_code(closing: str, folder: Path) -> None:
    assert code_of("verify", folder / "damaged", closing=closing) == 5


def test_plans_and_exports_are_made_without_a_reader(folder: Path, tmp_path: Path) -> None:
    pack = ["pack", folder / "dataset", "--sequence-length", 64, "--plan-out", tmp_path / "plan"]
    assert code_of(*pack) == 0
    assert (tmp_path / "plan" / "plan.json").is_file()
    export = ["export", folder / "dataset", "--plan", "plan", "--out", tmp_path / "rows"]
    assert code_of(*export) == 0
    assert (tmp_path / "rows" / "export.json").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [("--version",), ("--help",), ("status", "--help")])
@pytest.mark.parametrize("closing", [">/dev/full", ">&-"])
def test_output_that_cannot_be_written_is_an_error(arguments: list[str], closing: str) -> None:
    shell = ["bash", "-c", f'exec "$@" {closing}', "closed", *command(*arguments)]
    result = subprocess.run(shell, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 6
    assert result.stderr.startswith("tokenmill: cannot write the output\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_result_that_cannot_be_stored_is_a_storage_error(folder: Path) -> None:
    arguments = command("inspect", folder / "dataset", "--json", small=False)
    with open("/dev/full", "wb") as full:
        result = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 6
    assert os.strerror(errno.ENOSPC) in result.stderr
    assert "Exception ignored" not in result.stderr

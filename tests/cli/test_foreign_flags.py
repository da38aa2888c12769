"""Flags of other scripts are answered with what to write here."""

from __future__ import annotations

import pytest

from tokenmill.cli import main

MORE = "tokenmill build --help-all lists every option"


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--num-workers", "did you mean --workers? "),
        ("--num_proc", "did you mean --workers? "),
        ("--output-dir", "did you mean --out? "),
        ("--force", "did you mean --overwrite? "),
        ("--cache_dir", "did you mean --cache-dir? "),
        ("--input-dir", "inputs are positional: tokenmill build INPUT ...; "),
        ("--batch-size", "tokenmill build chooses the batch size itself, within --memory; "),
        (
            "--chunk_size",
            "set the length of sequences with --sequence-length of tokenmill build or pack; ",
        ),
        (
            "--max_chunks",
            "limit the sequences that are written with tokenmill export --max-sequences, or the "
            "documents that are read with tokenmill build --max-documents; ",
        ),
        (
            "--dataset",
            "a dataset on the Hub is an input: tokenmill build hf://fineweb-edu ...; ",
        ),
        (
            "--dataset_name",
            "a dataset on the Hub is an input: tokenmill build hf://datasets/OWNER/NAME ...; ",
        ),
    ],
)
def test_a_flag_of_another_script_has_a_hint(
    flag: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "data/", flag, "8"]) == 2
    assert capsys.readouterr().err == f"tokenmill: unknown option {flag}\n  next: {hint}{MORE}\n"


def test_several_flags_have_one_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "--input-dir", "data/", "--num-workers", "8"]) == 2
    assert capsys.readouterr().err == (
        "tokenmill: unknown options --input-dir, --num-workers\n"
        "  next: did you mean --workers? inputs are positional: tokenmill build INPUT ...; "
        f"{MORE}\n"
    )

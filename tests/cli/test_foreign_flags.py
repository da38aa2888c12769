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
        ("--input-dir", "inputs have no flag: tokenmill build INPUT ...; "),
        ("--batch-size", "batches of texts follow from --memory of tokenmill build; "),
        (
            "--chunk_size",
            "the length of a sequence is --sequence-length of tokenmill build or pack; ",
        ),
        (
            "--max_chunks",
            "tokenmill export --max-sequences stops writing, and tokenmill build --max-documents "
            "stops reading; ",
        ),
        (
            "--dataset",
            "a data set of the Hub is an input: tokenmill build hf://fineweb-edu ...; ",
        ),
        (
            "--dataset_name",
            "a data set of the Hub is an input: tokenmill build hf://datasets/OWNER/NAME ...; ",
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
        f"  next: did you mean --workers? inputs have no flag: tokenmill build INPUT ...; {MORE}\n"
    )

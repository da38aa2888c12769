"""The YAML schema: what it takes, and what it says of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tokenmill.core.errors import UserError
from tokenmill.encode.tokenizer_file import own_length
from tokenmill.hf import CausalLMConfig, CausalLMTokenizer
from tokenmill.hf.tokenizer import make_config

YAML = """
tokenizer:
  tokenizer_name: models/tokenizer.json
  context_length: 4096       # required
  overlap: 128
  batch_size: null
  num_proc: 4
  show_progress: false
  verbose_level: DEBUG
dataset:
  source: elsewhere
"""
OF_TOKENIZER = "model_max_length in tokenizer_config.json"
OF_MODEL = "max_position_embeddings in config.json"
EXPECTED = CausalLMConfig(
    tokenizer_name="models/tokenizer.json",
    context_length=4096,
    overlap=128,
    batch_size=None,
    num_proc=4,
    show_progress=False,
    verbose_level="DEBUG",
)


def test_a_yaml_file_a_mapping_and_the_struct_say_the_same(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(YAML)
    values = {name: getattr(EXPECTED, name) for name in EXPECTED.__struct_fields__}
    assert make_config(path) == make_config(str(path)) == EXPECTED
    assert make_config({"tokenizer": values, "dataset": {}}) == EXPECTED
    assert make_config(values) == EXPECTED
    assert make_config(EXPECTED) == EXPECTED


def test_all_problems_are_told_at_once_with_values_and_suggestions() -> None:
    options = {
        "contxt_length": 8,
        "overlap": -1,
        "batch_size": 20_000,
        "num_proc": 33,
        "show_progress": "yes",
        "verbose_level": "LOUD",
        "tokenizer_name": ["a"],
    }
    with pytest.raises(UserError) as caught:
        make_config({"tokenizer": options})
    assert caught.value.why.split("\n       ") == [
        "contxt_length: unknown option; did you mean context_length?",
        "overlap: got -1; must be a whole number, at least 0",
        "batch_size: got 20000; must be a whole number, at least 1 and at most 10000, or none",
        "num_proc: got 33; must be a whole number, at least 1 and at most 32, or none",
        "show_progress: got 'yes'; must be true or false",
        "verbose_level: got 'LOUD'; must be one of DEBUG, INFO, WARNING, ERROR",
        "tokenizer_name: got ['a']; must be text, or none",
    ]


@pytest.mark.parametrize("value", [0, 1, -5, 10**8, True, "many", 4.5])
def test_a_context_length_is_a_whole_number_that_fits_into_a_write(value: object) -> None:
    with pytest.raises(UserError, match="context_length: got"):
        make_config({"context_length": value})


@pytest.mark.parametrize(
    ("own", "of_model", "expected"),
    [
        (1024, {}, (1024, OF_TOKENIZER)),
        (1024, {"max_position_embeddings": 1024}, (1024, OF_TOKENIZER)),
        (512, {"max_position_embeddings": 514}, (512, OF_TOKENIZER)),
        (4096, {"max_position_embeddings": 2048}, (2048, OF_MODEL)),
        (10**30, {"max_position_embeddings": 2048}, (2048, OF_MODEL)),
        (10**30, {}, (0, "")),
        (10_000_001, {"max_position_embeddings": None}, (0, "")),
        ("1024", {"max_position_embeddings": True}, (0, "")),
    ],
)
def test_the_smaller_length_of_a_tokenizer_and_its_model_is_its_own(
    tmp_path: Path, own: object, of_model: dict[str, Any], expected: tuple[int, str]
) -> None:
    (tmp_path / "tokenizer.json").touch()
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": own}))
    (tmp_path / "config.json").write_text(json.dumps(of_model))
    assert own_length(tmp_path / "tokenizer.json") == own_length(str(tmp_path)) == expected


def test_a_row_of_one_token_leaves_none_to_predict_and_few_tokens_get_a_warning(
    tokenizer_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError) as caught:
        make_config({"context_length": 1})
    valid = "a whole number, at least 2 and at most 3947580, or none"
    assert caught.value.why == (
        f"context_length: got 1; must be {valid}; one token leaves none to predict"
    )
    CausalLMTokenizer({"tokenizer_name": str(tokenizer_path), "context_length": 12})
    assert "sequences of 12 tokens are very short; did you mean 12k?" in caplog.messages


def test_a_struct_is_checked_as_well() -> None:
    with pytest.raises(UserError, match="num_proc: got 0"):
        make_config(CausalLMConfig(context_length=8, num_proc=0))


def test_a_file_without_the_section_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("model: {}\n")
    with pytest.raises(UserError, match="section `tokenizer`") as caught:
        make_config(path)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "", "tokenizer: 5\n"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError):
        make_config(path)

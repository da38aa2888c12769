"""`tokenmill recipe`: what it prints can be built with, and be checked by editors."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from typing import Any

import pytest
import yaml

from tokenmill.cli import main
from tokenmill.core.errors import UserError
from tokenmill.run.recipe.checks import make_recipe

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
STARTED = {"inputs": ["data/*.jsonl"], "tokenizer": "tokenizer.json", "out": "corpus/"}


@pytest.fixture
def printed(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["recipe", request.param]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("printed", ["init"], indirect=True)
def test_the_recipe_to_edit_holds_every_option_at_its_default(printed: str) -> None:
    assert yaml.safe_load(printed) == STARTED
    everything = yaml.safe_load(re.sub("^#([ a-z_]+:)", r"\1", printed, flags=re.MULTILINE))
    export = everything.pop("export")
    assert make_recipe(everything) == make_recipe(STARTED)
    packed = {**STARTED, "pack": {"sequence_length": 8}}
    expected = make_recipe({**packed, "export": {"out": "rows/"}})
    assert make_recipe({**packed, "export": export}) == expected
    assert "\n  # folder of the rows; required\n#  out: " in printed


@pytest.mark.parametrize("printed", ["schema"], indirect=True)
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"read": {"validation": "0.1%"}, "resources": {"memory": "2GB"}}, ""),
        ({"pack": {"sequence_length": "4k", "packing": "best-fit"}}, ""),
        ({"inputs": "data/", "read": None, "pack": {"sequence_length": 2}}, ""),
        ({"pack": {"packing": "bestfit"}}, "'bestfit' is not one of"),
        ({"read": {"txt_field": "body"}}, "'txt_field' was unexpected"),
        ({"sequence_length": 8}, "'sequence_length' was unexpected"),
        ({"inputs": []}, "[] is not valid under any of the given schemas"),
        ({"pack": {"sequence_length": 1}}, "1 is not valid under any of the given schemas"),
        ({"export": None}, "None is not of type 'object'"),
        ({"export": {"out": "r/", "dtype": None}, "pack": {"sequence_length": 8}}, ""),
    ],
)
def test_the_schema_accepts_what_a_build_accepts(
    printed: str, changes: dict[str, Any], problem: str
) -> None:
    checker = jsonschema.Draft202012Validator(json.loads(printed))
    errors = [error.message for error in checker.iter_errors({**STARTED, **changes})]
    assert [problem in error for error in errors] == ([True] if problem else [])
    with pytest.raises(UserError) if problem else nullcontext():
        make_recipe({**STARTED, **changes})

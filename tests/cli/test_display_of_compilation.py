"""A build says that it compiles, because that takes seconds."""

from __future__ import annotations

import json
from pathlib import Path

import numba
import numpy as np
import pytest

from conftest import Printed, write_jsonl
from tokenmill.cli import main
from tokenmill.packing import planning as packing


@pytest.mark.parametrize("as_json", [False, True])
def test_a_build_says_that_its_plan_is_compiled(
    as_json: bool,
    tmp_path: Path,
    tokenizer_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Printed,
) -> None:
    function = numba.njit(lambda values: values + 1)
    monkeypatch.setattr(packing, "pack_subsets", lambda *_: [function(np.array([1]))][:0])
    path = write_jsonl(tmp_path / "a.jsonl", ["one"])
    command = ["build", str(path), "--tokenizer", str(tokenizer_path), "--workers", "1"]
    command += ["--out", str(tmp_path / "out"), *["--json"] * as_json]
    assert main([*command, "--sequence-length", "8"]) == 0
    out, err = capsys.readouterr()
    told = "   compiling  for this machine; later runs will not have to\n"
    assert (told in err) == (not as_json)
    if as_json:
        assert {json.loads(line)["event"] for line in out.splitlines()} >= {"finished"}

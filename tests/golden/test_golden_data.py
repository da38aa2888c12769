"""Every kind of input, tokenizer, export and training gives the bytes that were once recorded.

`golden_builds.py` has the cases, and `builds` the tokenizers and the record.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_builds import PARTS, RECORDED, made


@pytest.mark.parametrize("part", PARTS)
def test_the_bytes_are_those_that_were_recorded(part: str, tmp_path: Path) -> None:
    if part == "exports":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    assert made(part, tmp_path) == json.loads(RECORDED.read_text())[part]

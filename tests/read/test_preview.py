"""The fields that the first records have, for a question that is asked before work starts."""

from __future__ import annotations

import gzip
from pathlib import Path

from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS
from tokenmill.read.sources import find_sources


def fields_of(path: Path, data: bytes) -> set[str]:
    path.write_bytes(data)
    return FORMATS["jsonl"].check_fields(find_sources([str(path)])[0], Fields())


def test_fields_are_named_with_the_paths_to_them(tmp_path: Path) -> None:
    data = b'{"text": "a", "meta": {"id": 1, "x": {"y": []}}}\n{"url": null}\n'
    expected = {"text", "meta", "meta.id", "meta.x", "meta.x.y", "url"}
    assert fields_of(tmp_path / "a.jsonl", data) == expected
    assert fields_of(tmp_path / "b.jsonl", gzip.compress(data)) == expected


def test_bad_lines_are_passed_over(tmp_path: Path) -> None:
    bad = b'\xff\n{"a": \n' + b"[" * 5000 + b'\n[1]\n\n{"text": "a"}\n'
    assert fields_of(tmp_path / "a.jsonl", bad) == {"text"}
    assert fields_of(tmp_path / "b.jsonl", b"nothing\n") == set()

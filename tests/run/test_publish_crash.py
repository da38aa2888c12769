"""A crash between any two steps of publishing changes nothing in the end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import contents, write_corpus

import tokenmill
from tokenmill.read import units
from tokenmill.run import build as build_module
from tokenmill.run.commit import publish


class Crash(BaseException):
    """The process ends here."""


def crash_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which ends the process after so many calls."""
    count = 0

    def wrapped(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count > calls:
            raise Crash
        return function(*arguments)

    return wrapped


@pytest.mark.parametrize("name", ["manifest.json.123.tmp", "run.json.7.tmp"])
def test_a_half_written_manifest_does_not_stop_the_resume(
    name: str, tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=30)
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "write_manifest", crash_after(0, build_module.write_manifest))
        with pytest.raises(Crash):
            tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    (tmp_path / "out" / name).write_bytes(b"{")
    (tmp_path / "out" / "tokenizer" / "tokenizer.json.9.tmp").write_bytes(b"{")
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    tokenmill.verify(tmp_path / "out")


def test_an_interrupted_overwrite_leaves_no_old_shard_behind(
    tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
    write_corpus(tmp_path / "large", num_files=2, per_file=300)
    write_corpus(tmp_path / "little", num_files=1, per_file=30)
    tokenmill.build(tmp_path / "large", tokenizer_path, tmp_path / "out", workers=1)
    (tmp_path / "out" / "manifest.json").unlink()  # the first that --overwrite removes
    (tmp_path / "out" / "work").mkdir()
    (tmp_path / "out" / "work" / "lock").touch()
    tokenmill.build(tmp_path / "little", tokenizer_path, tmp_path / "out", workers=1)
    tokenmill.verify(tmp_path / "out", against_sources=True)


@pytest.mark.parametrize(
    ("module", "name", "calls"),
    [
        *[(publish, "_move", calls) for calls in (0, 1, 2, 7)],
        (build_module, "write_sealed", 0),
        (build_module, "write_manifest", 0),
        (build_module, "sweep", 0),
    ],
)
def test_a_crash_while_publishing_is_undone_or_finished(
    module: Any,
    name: str,
    calls: int,
    tmp_path: Path,
    tokenizer_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(units, "MIN_UNIT_BYTES", 16 << 10)
    write_corpus(tmp_path / "data", num_files=2, per_file=300)
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "clean", workers=1)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, crash_after(calls, getattr(module, name)))
        with pytest.raises(Crash):
            tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    assert contents(tmp_path / "out") == contents(tmp_path / "clean")

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
from tokenmill.store.objects.folder import FolderStore


class Crash(BaseException):
    """The process ends here."""


def crash_after(calls: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which ends the process after so many calls."""
    count = 0

    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count > calls:
            raise Crash
        return function(*arguments, **options)

    return wrapped


@pytest.mark.parametrize("name", [".manifest.json.0a1b.tmp", ".run.json.7c.tmp"])
def test_a_half_written_manifest_does_not_stop_the_resume(
    name: str, tmp_path: Path, tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "data", num_files=1, per_file=30)
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "publish", crash_after(0, build_module.publish))
        with pytest.raises(Crash):
            tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    (tmp_path / "out" / name).write_bytes(b"{")
    (tmp_path / "out" / "tokenizer" / ".tokenizer.json.9.tmp").write_bytes(b"{")
    tokenmill.build(tmp_path / "data", tokenizer_path, tmp_path / "out", workers=1)
    tokenmill.verify(tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.tmp"))


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
        *[(FolderStore, "create", calls) for calls in range(1, 18, 3)],
        *[(FolderStore, "add_files", calls) for calls in (0, 1)],
        (build_module, "publish", 0),
        (build_module, "sweep", 0),
        (publish, "judge_rejected", 0),
    ],
)
def test_a_crash_at_any_step_of_the_commit_is_finished_by_the_next_build(
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

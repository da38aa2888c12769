"""A run that was killed inside a split, and the one after it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest
from hf_kit import TEXTS, bare_tokenizer, dataset_of

from tokenmill.core.errors import EngineError
from tokenmill.hf import CausalLMTokenizer, rows, tokenizer, writing
from tokenmill.hf.writing import unfinished_rows
from tokenmill.store.files import unfinished_beside

CONFIGS: dict[str, dict[str, Any]] = {
    "windows": {"context_length": 32, "overlap": 8},
    "packed": {"context_length": 32, "packing": "best-fit", "dtype": "int32"},
}
SCRIPT = """
import json, os, sys
import datasets
from tokenmill.encode import exactness
from tokenmill.hf import CausalLMTokenizer, rows, tokenizer
from tokenmill.hf.writing import RowWriter

exactness.adversarial_texts = lambda special_tokens: ["a"]  # loading takes the time here
folder, configs = sys.argv[1], json.loads(sys.argv[2])
tokenizer.DATASET_BATCH_ROWS, rows.WINDOW_TOKENS = 50, 3000
record = RowWriter.record
seen = []

def dying(self, begun, num_rows):
    record(self, begun, num_rows)
    seen.append(num_rows)
    if len(seen) == 5:
        os.kill(os.getpid(), 9)

RowWriter.record = dying
for name, config in configs.items():
    if not os.fork():
        texts = datasets.load_from_disk(f"{folder}/texts")
        CausalLMTokenizer(config).tokenize(texts, cache_dir=f"{folder}/{name}")
    assert os.waitstatus_to_exitcode(os.wait()[1]) == -9
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, and with what killed runs of each configuration have left."""
    folder = tmp_path_factory.mktemp("killed")
    made = bare_tokenizer(before=1)
    made.enable_padding(pad_id=0, pad_token="<|endoftext|>")
    made.save(str(folder / "tokenizer.json"))
    texts: list[str | None] = [f"{i} {TEXTS[i % len(TEXTS)]}" if i % 7 else "" for i in range(400)]
    texts[100] = None
    dataset_of(texts).save_to_disk(folder / "texts")
    configs = {name: config_of(name, folder) for name in CONFIGS}
    command = [sys.executable, "-c", SCRIPT, str(folder), json.dumps(configs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "DATASET_BATCH_ROWS", 50)
    monkeypatch.setattr(rows, "WINDOW_TOKENS", 3000)


def config_of(name: str, folder: Path) -> dict[str, Any]:
    return {
        **CONFIGS[name],
        "tokenizer_name": str(folder / "tokenizer.json"),
        "append_eos": False,
        "batch_size": 30,
        "show_progress": False,
    }


def rows_file(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


@pytest.mark.parametrize("batch_size", [None, 7])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_killed_run_is_resumed_and_its_file_is_that_of_an_undisturbed_one(
    killed: Path,
    tmp_path: Path,
    name: str,
    batch_size: int | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    texts = datasets.load_from_disk(str(killed / "texts"))
    left = rows_file(killed / name)
    assert left.name.endswith(".arrow.unfinished")
    shutil.copytree(killed / name, tmp_path / "killed")
    whole = CausalLMTokenizer(config_of(name, killed))
    whole.tokenize(texts, cache_dir=tmp_path / "whole")
    resumed = CausalLMTokenizer({**config_of(name, killed), "batch_size": batch_size})
    resumed.tokenize(texts, cache_dir=tmp_path / "killed")
    assert "resuming: an earlier run has made 250 rows" in caplog.messages
    assert rows_file(tmp_path / "killed").read_bytes() == rows_file(tmp_path / "whole").read_bytes()
    assert resumed.summary.counts == whole.summary.counts
    assert (resumed.summary.rows, resumed.summary.resumed_rows) == (whole.summary.rows, 250)


def test_nothing_of_a_killed_run_is_used_without_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"
    left = unfinished_beside(path)
    left.mkdir()
    (left / "rows.arrow").write_bytes(b"x" * 100)
    (left / "done.json").write_text('{"rows": 5, "num_bytes": 50}')
    with unfinished_rows(path, can_resume=False) as unfinished:
        assert unfinished.done.rows == 0
        unfinished._file.write(b"new")
    assert path.read_bytes() == b"new"
    with unfinished_rows(path, can_resume=True) as unfinished:
        assert (unfinished.done.rows, unfinished.done.num_bytes) == (5, 50)
        unfinished._file.write(b"tail")
    assert path.read_bytes() == b"x" * 50 + b"tail"
    assert not left.exists()


@pytest.mark.parametrize(
    "done", ['{"rows": 5, "num_bytes": 500}', '{"rows": "five"}', "", '{"unknown": 1}']
)
def test_what_is_damaged_is_made_from_the_start(tmp_path: Path, done: str) -> None:
    path = tmp_path / "rows.arrow"
    left = unfinished_beside(path)
    left.mkdir()
    (left / "rows.arrow").write_bytes(b"x" * 100)
    (left / "done.json").write_text(done)
    with unfinished_rows(path, can_resume=True) as unfinished:
        assert unfinished.done == writing.Done()
        unfinished._file.write(b"new")
    assert path.read_bytes() == b"new"


def test_an_error_keeps_what_is_done_but_not_that_of_a_wrong_engine(tmp_path: Path) -> None:
    path = tmp_path / "rows.arrow"

    def fail(error: BaseException) -> None:
        with unfinished_rows(path, can_resume=True) as unfinished:
            unfinished._file.write(b"some")
            unfinished.record(writing.Done(), 1)
            raise error

    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    assert [found.name for found in tmp_path.iterdir()] == [".rows.arrow.unfinished"]
    with pytest.raises(EngineError):
        fail(EngineError("differs"))
    assert list(tmp_path.iterdir()) == []

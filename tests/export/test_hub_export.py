"""Rows on the Hub: the card, the bytes, what kills and conflicts leave, where the token goes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import msgspec
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _cache_assets, _http
from msgspec import UNSET

import tokenmill
from conftest import Printed, write_jsonl
from hub_kit import TOKEN, FakeHub, Fault, serving, sha256
from tokenmill.cli import main
from tokenmill.core.errors import OutputConflictError, StorageError, UserError
from tokenmill.load.export.hub import publishing as hub_export
from tokenmill.read.places.hub import client
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.exports import Format

# Of huggingface_hub, which still sends files as `data`.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

STREAMING = Path(__file__).parents[2] / ".venv-readers-mosaicml-streaming" / "bin" / "python"
OUT = "hf://datasets/me/rows"
OPTIONS = {"sequences_per_file": 3}
INITIAL = {".gitattributes": b"*.parquet filter=lfs\n"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, tokenizer_path: Path) -> Path:
    """Twenty documents of four tokens, planned as twenty rows of four."""
    folder = tmp_path_factory.mktemp("corpus")
    path = write_jsonl(folder / "a.jsonl", [f"{number % 10}" * 3 for number in range(20)])
    tokenmill.build(path, tokenizer_path, folder / "corpus", workers=1)
    tokenmill.pack(folder / "corpus", sequence_length=4)
    return folder / "corpus"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """A hub whose user is logged in; large files go over HTTP, because it does not speak Xet."""
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(_cache_assets, "HF_ASSETS_CACHE", str(tmp_path / "assets"))
        yield hub


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "pause", lambda seconds, check: None)
    monkeypatch.setattr(_http, "time", SimpleNamespace(sleep=lambda seconds: None))


def local_files(corpus: Path, folder: Path, **options: object) -> dict[str, bytes]:
    """What an export into a folder writes, but for the place of the dataset on this machine."""
    manifest = tokenmill.export(corpus, folder, **OPTIONS | options)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    placeless = msgspec.structs.replace(manifest, dataset_place=UNSET, plan_place=UNSET)
    return files | {"export.json": canonical_json(sealed(placeless))}


def without_card(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path not in ("README.md", *INITIAL)}


def uploads(hub: FakeHub) -> Counter[str]:
    """How often each large file was sent, by digest."""
    return Counter(r.removeprefix("/store/") for r in hub.requests if r.startswith("/store/"))


CARD = """\
---
# Add a license here, as in https://huggingface.co/docs/hub/repositories-licenses
tags:
- tokenmill
configs:
- config_name: default
  data_files:
  - split: train
    path: "*.parquet"
---

# rows

Packed rows of token ids, written by tokenmill VERSION.

| | |
|---|---|
| rows | 20 of 4 tokens, shuffled |
| tokens | 80 without padding, in all 20 rows of the plan |
| tokenizer | huggingface, SHA-256 `TOKENIZER` |
| dataset | `DATASET`, 20 documents |
| plan | `PLAN`, best-fit |
| sources | 1 file |

Columns: `input_ids` uint16, `position_ids` int32; padding id 0. Not stored: `labels`, input_ids, \
but -100 where position_ids is 0 and in padding.

## Load

```python
from datasets import load_dataset

rows = load_dataset("me/rows", split="train")
```

## Verify

With the dataset, tokenmill compares every token:

```
hf download me/rows --repo-type dataset --revision main --local-dir rows
tokenmill verify rows --dataset corpus/
```

`export.json` lists the size and the XXH3-128 digest of each file.
"""


def test_rows_are_published_with_a_card_in_one_commit(
    hub: FakeHub, corpus: Path, tmp_path: Path, capsys: Printed
) -> None:
    command = ["export", str(corpus), "--out", OUT, "--sequences-per-file", "3"]
    assert main(command) == 0
    printed = capsys.readouterr()
    expected = local_files(corpus, tmp_path / "rows")
    files = hub.files("me/rows")
    assert without_card(files) == expected
    manifest = tokenmill.open(corpus).manifest
    card = CARD.replace("VERSION", tokenmill.__version__)
    card = card.replace("TOKENIZER", manifest.tokenizer.sha256)
    card = card.replace("DATASET", manifest.dataset_id)
    card = card.replace("PLAN", json.loads(expected["export.json"])["plan_id"])
    assert files["README.md"].decode() == card
    assert len(hub.repos["me/rows"]) == 2  # the first commit, and that of the rows
    size = sum(len(data) for name, data in expected.items() if name.endswith(".parquet"))
    assert printed.out == (
        f"20 rows in 7 files, {size:,} bytes\n"
        "columns: input_ids uint16, position_ids int32; padding id 0\n"
        "labels are left out: input_ids, but -100 where position_ids is 0 and in padding\n"
        "to write them, add --with-labels\n"
        "published as hf://datasets/me/rows\n"
    )
    assert printed.err == ""
    assert {*hub.tokens_at_store} == {None}
    assert list((tmp_path / "assets" / "tokenmill" / "exports").iterdir()) == []

    assert main(command) == 0
    assert capsys.readouterr().out.startswith("nothing to do: the export is complete\n20 rows")
    assert len(hub.repos["me/rows"]) == 2
    assert {*uploads(hub).values()} == {1}


@pytest.mark.parametrize("format_name", get_args(Format))
def test_the_code_in_the_card_loads_and_verifies_the_rows(
    hub: FakeHub, corpus: Path, tmp_path: Path, format_name: str
) -> None:
    hub.page_entries = 1000
    tokenmill.export(corpus, f"{OUT}@b", format=format_name, order="plan")
    card = hub.files("me/rows", "b")["README.md"].decode()
    load, verify = re.findall(r"```(?:python)?\n(.*?)```", card, re.DOTALL)
    show = {
        "npy": "print(rows.tolist())",
        "pt": "print(rows['input_ids'].tolist())",
        "mds": "print([row['tokens'].tolist() for row in map(rows.__getitem__, range(len(rows)))])",
    }.get(format_name, "print(rows['input_ids'][:])")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    programs = f"{Path(sys.executable).parent}:{environment['PATH']}"
    (tmp_path / "corpus").symlink_to(corpus)
    verified = subprocess.run(
        ["sh", "-ec", verify],
        cwd=tmp_path,
        env=environment | {"PATH": programs}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert verified.returncode == 0, verified.stderr
    assert "20 rows, 80 tokens" in verified.stdout
    python = Path(sys.executable)
    if format_name == "mds":  # what needs streaming may have an older library of the Hub
        download = "from huggingface_hub import snapshot_download\n"
        assert download in load
        downloaded = "snapshot_download = lambda *_, **options: 'rows'\n"
        python, load = STREAMING, load.replace(download, downloaded)
        if not python.is_file() or subprocess.run([python, "-c", "import streaming"]).returncode:
            pytest.skip("streaming cannot be imported: make readers")
    else:
        pytest.importorskip("datasets", reason="datasets is not installed")
    done = subprocess.run(
        [python, "-W", "ignore", "-c", f"{load}\n{show}"],
        cwd=tmp_path,
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    tokenmill.export(corpus, tmp_path / "expected", order="plan")
    (expected,) = (tmp_path / "expected").glob("*.parquet")
    assert (
        json.loads(done.stdout.splitlines()[-1])
        == pq.read_table(expected).column("input_ids").to_pylist()
    )


def test_a_killed_upload_shows_nothing_and_continues(
    hub: FakeHub, corpus: Path, tmp_path: Path
) -> None:
    expected = local_files(corpus, tmp_path / "rows")
    seventh = sha256(expected["rows-4-00006.parquet"])
    hub.pause_at = f"/store/{seventh}"
    command = ["-m", "tokenmill", "export", str(corpus), "--out", OUT, "--sequences-per-file", "3"]
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_DISABLE_XET": "1"}
    process = subprocess.Popen([sys.executable, *command], env=environment)
    while not hub.asked(seventh):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert hub.files("me/rows") == INITIAL
    done = {sha256(expected[f"rows-4-0000{number}.parquet"]) for number in range(5)}
    assert done <= hub.stored.keys()
    hub.pause_at = ""
    hub.goes_on.set()
    continued = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )
    assert (continued.returncode, continued.stderr) == (0, "")
    assert without_card(hub.files("me/rows")) == expected
    assert {uploads(hub)[digest] for digest in done} == {1}
    assert TOKEN not in continued.stdout


def test_something_else_in_the_repository_is_kept(hub: FakeHub, corpus: Path) -> None:
    for overwrite in (False, True):
        hub.commit("me/rows", {**INITIAL, "README.md": b"# mine", "thesis.pdf": b"mine"})
        with pytest.raises(OutputConflictError) as caught:
            tokenmill.export(corpus, OUT, overwrite=overwrite)
        assert str(caught.value) == (
            "the repository holds something else\n"
            "  where: hf://datasets/me/rows\n"
            "  why: it holds 'thesis.pdf'\n"
            "  next: choose another repository or branch"
        )
    assert len(hub.repos["me/rows"]) == 1


def test_another_export_is_replaced_only_if_asked_for(
    hub: FakeHub, corpus: Path, tmp_path: Path
) -> None:
    tokenmill.export(corpus, OUT, **OPTIONS)
    before = hub.files("me/rows")
    with pytest.raises(OutputConflictError) as caught:
        tokenmill.export(corpus, OUT, format="npy")
    assert str(caught.value) == (
        "the repository holds something else\n"
        "  where: hf://datasets/me/rows\n"
        "  why: format: parquet, not npy; columns: input_ids,position_ids, not "
        "input_ids,labels,position_ids; sequences_per_file: 3, not 50000; dtype: uint16, not int32"
        "\n  next: choose another repository or branch, or add --overwrite"
    )
    assert hub.files("me/rows") == before
    tokenmill.export(corpus, OUT, format="npy", overwrite=True)
    after = without_card(hub.files("me/rows"))
    assert sorted(after) == [
        "export.json",
        "rows-4-00000.input_ids.npy",
        "rows-4-00000.labels.npy",
        "rows-4-00000.position_ids.npy",
    ]


def test_a_card_that_somebody_wrote_is_replaced_only_if_asked_for(
    hub: FakeHub, corpus: Path
) -> None:
    hub.commit("me/rows", {**INITIAL, "README.md": b"---\nlicense: mit\n---\n"})
    with pytest.raises(OutputConflictError, match="it holds only a card"):
        tokenmill.export(corpus, OUT)
    tokenmill.export(corpus, OUT, overwrite=True)
    assert b"Packed rows" in hub.files("me/rows")["README.md"]


def test_the_same_export_is_committed_again_with_a_new_card_if_asked_for(
    hub: FakeHub, corpus: Path
) -> None:
    tokenmill.export(corpus, OUT, **OPTIONS)
    files = hub.files("me/rows")
    hub.commit("me/rows", files | {"README.md": b"---\nlicense: mit\n---\n"})
    tokenmill.export(corpus, OUT, **OPTIONS)
    assert hub.files("me/rows")["README.md"] == b"---\nlicense: mit\n---\n"
    tokenmill.export(corpus, OUT, overwrite=True, **OPTIONS)
    assert hub.files("me/rows") == files
    assert {*uploads(hub).values()} == {1}


def test_an_interrupted_export_of_other_rows_is_replaced_only_if_asked_for(
    hub: FakeHub, corpus: Path
) -> None:
    hub.faults = [Fault("/batch", status=418)]
    with pytest.raises(StorageError, match="418"):
        tokenmill.export(corpus, OUT, **OPTIONS)
    with pytest.raises(OutputConflictError, match="the output folder holds another export"):
        tokenmill.export(corpus, OUT)
    tokenmill.export(corpus, OUT, overwrite=True)
    assert hub.asked("/commit/") == 1


def test_a_new_branch_holds_only_the_export_and_the_main_branch_stays(
    hub: FakeHub, corpus: Path, tmp_path: Path
) -> None:
    tokenmill.export(corpus, OUT)
    before = hub.files("me/rows")
    tokenmill.export(corpus, f"{OUT}@threes", **OPTIONS)
    assert hub.files("me/rows") == before
    assert without_card(hub.files("me/rows", "threes")) == local_files(corpus, tmp_path / "rows")
    card = hub.files("me/rows", "threes")["README.md"].decode()
    assert 'load_dataset("me/rows", revision="threes", split="train")' in card


def test_a_manifest_of_a_terabyte_is_not_downloaded(hub: FakeHub, corpus: Path) -> None:
    hub.commit("me/rows", INITIAL)
    hub.hostile_listing = [
        {"type": "file", "path": "export.json", "size": 1 << 40, "oid": "0" * 40}
    ]
    with pytest.raises(OutputConflictError, match="the repository holds something else"):
        tokenmill.export(corpus, OUT)
    assert hub.asked("/resolve/") == 0


def test_rows_that_were_damaged_before_they_were_uploaded_are_written_again(
    hub: FakeHub, corpus: Path, tmp_path: Path
) -> None:
    hub.faults = [Fault("/commit/", status=507)]
    with pytest.raises(StorageError):
        tokenmill.export(corpus, OUT, **OPTIONS)
    damaged = next((tmp_path / "assets").rglob("rows-4-00001.parquet"))
    data = damaged.read_bytes()
    damaged.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    tokenmill.export(corpus, OUT, **OPTIONS)
    assert without_card(hub.files("me/rows")) == local_files(corpus, tmp_path / "rows")


@pytest.mark.parametrize("ignored", [b"*.parquet", b"*.json", b"README.md"])
def test_a_gitignore_of_the_main_branch_leaves_nothing_out(
    hub: FakeHub, corpus: Path, tmp_path: Path, ignored: bytes
) -> None:
    hub.commit("me/rows", {**INITIAL, ".gitignore": ignored})
    tokenmill.export(corpus, f"{OUT}@threes", **OPTIONS)
    found = hub.files("me/rows", "threes")
    assert "README.md" in found
    assert without_card(found) == local_files(corpus, tmp_path / "rows")


def test_a_hub_that_does_not_show_what_was_committed_is_named(hub: FakeHub, corpus: Path) -> None:
    url = f"{hub.endpoint}/datasets/me/rows/commit/{'0' * 40}"
    body = json.dumps({"commitUrl": url, "commitOid": "0" * 40}).encode()
    hub.faults = [Fault("/commit/", status=200, body=body)]
    with pytest.raises(StorageError, match="it does not list all files after the commit"):
        tokenmill.export(corpus, OUT)
    tokenmill.export(corpus, OUT)
    assert "export.json" in hub.files("me/rows")


def test_a_commit_of_somebody_else_is_not_overwritten(
    hub: FakeHub, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export(*args: object, **options: object) -> object:
        hub.commit("me/rows", {**INITIAL, "data.txt": b"theirs"})
        return written(*args, **options)

    written = hub_export.export
    monkeypatch.setattr(hub_export, "export", export)
    with pytest.raises(StorageError, match="status 412"):
        tokenmill.export(corpus, OUT)
    assert hub.files("me/rows")["data.txt"] == b"theirs"


def test_a_public_repository_is_named_before_anything_is_uploaded(
    hub: FakeHub, corpus: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub.commit("me/rows", INITIAL)
    hub.public.add("me/rows")
    tokenmill.export(corpus, OUT)
    assert [record.message for record in caplog.records if record.name.startswith("tokenmill")] == [
        "hf://datasets/me/rows is public: everyone will be able to read the rows"
    ]


@pytest.mark.parametrize(
    ("status", "what", "hint"),
    [
        (401, "the Hub does not let you write", "use a token that may write there: log in with"),
        (403, "the Hub does not let you write", "use a token that may write there: log in with"),
        (500, "the Hub did not answer", "it resumes where it stopped"),
        (507, "the Hub refused the rows", "it resumes where it stopped"),
    ],
)
@pytest.mark.parametrize("place", ["/repos/create", "/batch", "/store/", "/commit/"])
def test_a_refusal_says_what_to_do_and_keeps_the_rows(
    hub: FakeHub,
    corpus: Path,
    without_pauses: None,
    tmp_path: Path,
    status: int,
    what: str,
    hint: str,
    place: str,
) -> None:
    hub.faults = [Fault(place, status=status, headers={"X-Error-Message": "no"}, times=1000)]
    with pytest.raises((UserError, StorageError)) as caught:
        tokenmill.export(corpus, OUT, **OPTIONS)
    assert caught.value.what == what
    assert hint in caught.value.hint
    assert f"status {status}" in caught.value.why
    assert TOKEN not in str(caught.value)
    hub.faults = []
    tokenmill.export(corpus, OUT, **OPTIONS)
    assert without_card(hub.files("me/rows")) == local_files(corpus, tmp_path / "rows")


@pytest.mark.parametrize("place", ["/repos/create", "/preupload/", "/batch", "/commit/"])
@pytest.mark.parametrize("body", [b"[]", b"{}", b"null", b"<html>"])
def test_an_answer_of_another_form_is_no_bug(
    hub: FakeHub, corpus: Path, without_pauses: None, place: str, body: bytes
) -> None:
    hub.faults = [Fault(place, status=200, body=body, times=1000)]
    with pytest.raises(StorageError) as caught:
        tokenmill.export(corpus, OUT)
    assert caught.value.what == "the Hub refused the rows"
    assert "it resumes where it stopped" in caught.value.hint


def test_a_server_that_falls_silent_is_asked_again_and_then_left(
    hub: FakeHub, corpus: Path, without_pauses: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_export, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(client, "MAX_FAILURES", 1)
    hub.pause_at = "/commit/"
    with pytest.raises(StorageError) as caught:
        tokenmill.export(corpus, OUT)
    hub.goes_on.set()
    assert caught.value.what == "the Hub did not answer"
    assert "timed out" in caught.value.why


def test_a_busy_hub_is_asked_again(hub: FakeHub, corpus: Path, without_pauses: None) -> None:
    hub.faults = [Fault(place, status=503) for place in ("/create", "/batch", "/store/", "/commit")]
    tokenmill.export(corpus, OUT)
    assert "export.json" in hub.files("me/rows")


def test_the_token_goes_to_no_other_server(hub: FakeHub, corpus: Path) -> None:
    port = int(hub.endpoint.rpartition(":")[2])
    with serving() as other:
        for where in (f"localhost:{port}", other.endpoint.removeprefix("http://")):
            hub.verify_at, hub.stored = where, {}
            with pytest.raises(StorageError) as caught:
                tokenmill.export(corpus, OUT)
            assert str(caught.value) == (
                "the token is not sent to another server\n"
                f"  where: http://{where}\n"
                "  why: an answer of 127.0.0.1 asks for it"
            )
        assert not hub.asked("/verify")
        assert other.requests == []


def test_without_a_token_or_offline_nothing_is_asked(
    hub: FakeHub, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="HF_HUB_OFFLINE is set") as error:
        tokenmill.export(corpus, OUT)
    assert error.value.hint == "unset it"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", "/nonexistent")
    with pytest.raises(UserError, match="there is no token"):
        tokenmill.export(corpus, OUT)
    assert hub.requests == []


@pytest.mark.parametrize(
    "out",
    [
        "hf://tinystories",
        "hf://models/me/rows",
        "hf://datasets/rows",
        "hf://datasets/me/rows/data",
        "hf://datasets/me/rows@refs/pr/1",
        f"hf://datasets/me/rows@{'0' * 40}",
        "hf://datasets/me/..",
    ],
)
def test_other_names_are_refused(corpus: Path, out: str) -> None:
    with pytest.raises(UserError, match="expected hf://datasets/OWNER/NAME"):
        tokenmill.export(corpus, out)


def test_documents_are_not_published(corpus: Path, capsys: Printed) -> None:
    assert main(["export", str(corpus), "--out", OUT, "--format", "megatron"]) == 2
    assert "only inputs and rows of tokenmill export can be on the Hub" in capsys.readouterr().err


def test_a_second_process_does_not_publish_the_same(
    hub: FakeHub, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def branch(name: object) -> None:
        with pytest.raises(OutputConflictError, match="another process publishes it"):
            tokenmill.export(corpus, OUT)
        raise UserError("the end of the first")

    monkeypatch.setattr(hub_export, "_Branch", branch)
    with pytest.raises(UserError, match="the end of the first"):
        tokenmill.export(corpus, OUT)

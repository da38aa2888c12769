"""The tokenizer as the user gives it: a file, a folder, or a name on the Hub in the local cache."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tokenizer_kit import byte_level_json, sentencepiece_model

from tokenmill.encode import tokenizer_file
from tokenmill.encode.encodings import ENCODINGS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file, open_stored_tokenizer
from tokenmill.errors import UserError

JSON = json.dumps(byte_level_json()).encode()
RANKS = b"YQ== 0\nYg== 1\nYWI= 2\n"
CONFIG = {"eos_token": "</s>", "add_bos_token": True}


@pytest.fixture(autouse=True)
def gpt2_has_three_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODINGS, "gpt2", type(ENCODINGS["gpt2"])("", num_ranks=3))


def write(path: Path, data: bytes | Mapping[str, object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
    return path


def refusal(spec: Path | str, encoding: str = "") -> UserError:
    with pytest.raises(UserError) as caught:
        load_tokenizer_file(str(spec), encoding)
    return caught.value


def test_a_tokenizer_json_is_known_by_its_content(tmp_path: Path) -> None:
    path = write(tmp_path / "any.name", JSON)
    expected = TokenizerFile("huggingface", JSON, origin=str(path))
    assert load_tokenizer_file(str(path)) == expected


def test_a_sentencepiece_model_is_known_by_its_content(tmp_path: Path) -> None:
    model = sentencepiece_model()
    for name in ("tokenizer.model", "any.name"):
        path = write(tmp_path / name, model)
        expected = TokenizerFile("sentencepiece", model, origin=str(path))
        assert load_tokenizer_file(str(path)) == expected


def test_a_rank_file_is_known_by_its_content_and_its_encoding_by_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "gpt2.tiktoken", RANKS)
    expected = TokenizerFile("tiktoken", RANKS, "gpt2", origin=str(path))
    assert load_tokenizer_file(str(path)) == expected


@pytest.mark.parametrize("name", ["tokenizer.model", "ranks.txt", "llama3.tiktoken"])
def test_a_rank_file_of_any_name_takes_the_encoding_that_is_said(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, RANKS)
    expected = TokenizerFile("tiktoken", RANKS, "gpt2", origin=str(path))
    assert load_tokenizer_file(str(path), "gpt2") == expected


def test_an_encoding_that_is_not_known_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    error = refusal(write(tmp_path / "gtp2.tiktoken", RANKS))
    assert error.what == "'gtp2' is not a known encoding"
    assert error.hint.endswith("(did you mean gpt2?)")
    assert all(name in error.hint for name in ENCODINGS)
    assert "did you mean" not in refusal(write(tmp_path / "x.tiktoken", RANKS)).hint


def test_a_rank_file_with_another_number_of_ranks_is_refused(tmp_path: Path) -> None:
    error = refusal(write(tmp_path / "gpt2.tiktoken", RANKS + b"YWE= 3\n"))
    assert error.what == "the rank file is not gpt2"
    assert error.why == "it has 4 ranks; gpt2 has 3"


def test_an_encoding_is_refused_where_the_file_says_it_all(tmp_path: Path) -> None:
    error = refusal(write(tmp_path / "tokenizer.json", JSON), "gpt2")
    assert error.what == "--encoding is for tiktoken rank files only"


@pytest.mark.parametrize(
    "data",
    [b"", b"hello world", b"one line of text\n", b"\x00\x01", b"{}", b'{"model": "BPE"}', b'["a"]'],
)
def test_a_file_of_no_known_kind_is_refused(tmp_path: Path, data: bytes) -> None:
    assert refusal(write(tmp_path / "file", data)).what == "the tokenizer's kind is unknown"


@pytest.mark.parametrize("data", [b'{"model": ', b'{"a": "\xff"}', b"{" * 100_000])
def test_json_that_is_damaged_is_refused(tmp_path: Path, data: bytes) -> None:
    assert refusal(write(tmp_path / "file", data)).what == "the file is not a JSON object"


def test_a_file_that_is_too_large_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_file, "MAX_TOKENIZER_BYTES", 10)
    error = refusal(write(tmp_path / "tokenizer.json", b"{" + b" " * 10))
    assert error.what == "the tokenizer file is too large"
    assert error.why == "it has 11 bytes; the limit is 10"


@pytest.mark.parametrize("spec", ["no/such/file", "./no", "no", "data/tokenizer.json", "a/b.model"])
def test_a_path_that_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(spec)
    assert (error.what, error.where) == ("there is no such tokenizer", spec)


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["tokenizer.json", "tokenizer.model", "gpt2.tiktoken"], "huggingface"),
        (["tokenizer.model", "gpt2.tiktoken"], "sentencepiece"),
        (["gpt2.tiktoken", "other.txt"], "tiktoken"),
        (["spiece.model"], "sentencepiece"),
        (["sentencepiece.bpe.model"], "sentencepiece"),
        (["own.model"], "sentencepiece"),
    ],
)
def test_a_folder_stands_for_the_best_tokenizer_in_it(
    tmp_path: Path, names: list[str], kind: str
) -> None:
    contents = {".json": JSON, ".model": b"\nmodel", ".tiktoken": RANKS, ".txt": b""}
    for name in names:
        write(tmp_path / name, contents[Path(name).suffix])
    assert load_tokenizer_file(str(tmp_path)).kind == kind


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path).what == "the folder holds no tokenizer"


def test_a_folder_with_code_of_its_own_is_refused_and_the_code_never_run(tmp_path: Path) -> None:
    auto_map = {"auto_map": {"AutoTokenizer": ["tokenization_own.Own", None]}}
    write(tmp_path / "tokenizer_config.json", auto_map)
    write(tmp_path / "tokenization_own.py", b"raise SystemExit('run')")
    assert refusal(tmp_path).what == "the tokenizer is Python code of its own, which is never run"


def test_the_configuration_beside_the_tokenizer_comes_with_it(tmp_path: Path) -> None:
    write(tmp_path / "tokenizer.json", JSON)
    write(tmp_path / "special_tokens_map.json", {"eos_token": "<a>", "pad_token": "<p>"})
    config = write(tmp_path / "tokenizer_config.json", CONFIG)
    found = load_tokenizer_file(str(tmp_path))
    assert found.config == {**CONFIG, "pad_token": "<p>"}
    assert found.config_data == config.read_bytes()


def test_a_damaged_configuration_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "tokenizer.json", JSON)
    write(tmp_path / "tokenizer_config.json", b"[]")
    assert refusal(tmp_path).where == str(tmp_path / "tokenizer_config.json")


def test_the_digest_is_of_the_bytes_and_the_encoding() -> None:
    assert TokenizerFile("huggingface", b"abc").sha256 == hashlib.sha256(b"abc").hexdigest()
    same_bytes = [TokenizerFile("tiktoken", b"abc", name).sha256 for name in ("gpt2", "llama3")]
    assert same_bytes[0] != same_bytes[1]


@pytest.mark.parametrize(
    ("kind", "name", "data", "encoding"),
    [
        ("huggingface", "tokenizer.json", JSON, ""),
        ("tiktoken", "tokenizer.tiktoken", RANKS, "gpt2"),
        ("sentencepiece", "tokenizer.model", b"\nmodel", ""),
    ],
)
def test_a_dataset_gives_back_the_tokenizer_that_it_carries(
    tmp_path: Path, kind: str, name: str, data: bytes, encoding: str
) -> None:
    write(tmp_path / name, data)
    expected = TokenizerFile(kind, data, encoding, origin=str(tmp_path))
    assert open_stored_tokenizer(tmp_path, kind, encoding) == expected


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def hub_cache(folder: Path, name: str, files: dict[str, bytes]) -> None:
    """What huggingface_hub leaves in its cache after a download."""
    repository = folder / f"models--{name.replace('/', '--')}"
    write(repository / "refs" / "main", COMMIT.encode())
    for place, data in files.items():
        write(repository / "snapshots" / COMMIT / place, data)


def load_offline(cache: Path, spec: str) -> str:
    """What a process without a network makes of a Hub name: its answer, or its error."""
    program = (
        "import sys\n"
        "from tokenmill.encode.tokenizer_file import load_tokenizer_file\n"
        "from tokenmill.errors import UserError\n"
        "try:\n"
        "    file = load_tokenizer_file(sys.argv[1])\n"
        "    print(file.kind, file.origin, len(file.data), sorted(file.config.items()))\n"
        "except UserError as error:\n"
        "    print(error.what, '|', error.where)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache)}
    command = [sys.executable, "-c", program, spec]
    done = subprocess.run(
        command, env=environment, cwd=cache, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["owner/model", "owner/Model-3.2-1B"])
def test_a_name_on_the_hub_is_found_in_the_local_cache(tmp_path: Path, name: str) -> None:
    pytest.importorskip("huggingface_hub")
    files = {"tokenizer.json": JSON, "tokenizer_config.json": json.dumps(CONFIG).encode()}
    hub_cache(tmp_path, name, files)
    items = sorted(CONFIG.items())
    assert load_offline(tmp_path, name) == f"huggingface {name} {len(JSON)} {items}"


def test_a_name_on_the_hub_needs_no_configuration(tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    hub_cache(tmp_path, "owner/model", {"tokenizer.json": JSON})
    assert load_offline(tmp_path, "owner/model") == f"huggingface owner/model {len(JSON)} []"


@pytest.mark.parametrize("name", ["owner/model", "owner/no model"])
def test_a_name_that_cannot_be_fetched_is_refused(tmp_path: Path, name: str) -> None:
    pytest.importorskip("huggingface_hub")
    assert load_offline(tmp_path, name) == f"cannot get the tokenizer | {name}"

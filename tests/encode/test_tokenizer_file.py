"""The tokenizer as the user gives it: a file, a folder, or the name of a model on the Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tokenizer_kit import byte_level_json, sentencepiece_model

from hub_kit import FakeHub, Fault, serving
from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.encode import tokenizer_file
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import (
    load_tokenizer_file,
    open_stored_tokenizer,
    own_length,
)

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


@pytest.mark.parametrize(
    ("name", "kind", "encoding", "said"),
    [
        ("any.name", "huggingface", "", ""),
        ("any.name", "sentencepiece", "", ""),
        ("gpt2.tiktoken", "tiktoken", "gpt2", ""),
        ("tokenizer.model", "tiktoken", "gpt2", "gpt2"),
        ("llama3.tiktoken", "tiktoken", "gpt2", "gpt2"),
    ],
)
def test_a_file_is_known_by_its_content_and_its_encoding_by_its_name_or_as_said(
    tmp_path: Path, name: str, kind: str, encoding: str, said: str
) -> None:
    data = {"huggingface": JSON, "sentencepiece": sentencepiece_model(), "tiktoken": RANKS}[kind]
    path = write(tmp_path / name, data)
    expected = TokenizerFile(kind, data, encoding, origin=str(path))
    assert load_tokenizer_file(str(path), said) == expected


def test_an_encoding_that_is_not_known_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    error = refusal(write(tmp_path / "gtp2.tiktoken", RANKS))
    assert error.what == "'gtp2' is not a known encoding"
    assert error.hint.endswith("(did you mean gpt2?)")
    assert all(name in error.hint for name in ENCODINGS)
    assert "did you mean" not in refusal(write(tmp_path / "x.tiktoken", RANKS)).hint


def test_an_encoding_is_refused_where_the_file_says_it_all(tmp_path: Path) -> None:
    error = refusal(write(tmp_path / "tokenizer.json", JSON), "gpt2")
    assert error.what == "--encoding works only with tiktoken rank files"


@pytest.mark.parametrize(
    "data",
    [b"", b"hello world", b"one line of text\n", b"\x00\x01", b"{}", b'{"model": "BPE"}', b'["a"]'],
)
def test_a_file_of_no_known_kind_is_refused(tmp_path: Path, data: bytes) -> None:
    assert refusal(write(tmp_path / "file", data)).what == "unknown tokenizer format"


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


@pytest.mark.parametrize(
    "spec", ["no/such/file", "./no", "n o", "data/tokenizer.json", "a/b.model"]
)
def test_a_path_that_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(spec)
    assert (error.what, error.where) == ("cannot find the tokenizer", spec)
    assert error.why.endswith("and it is not a valid model name on the Hub")


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


@pytest.mark.parametrize("name", ["tokenizer_config.json", "config.json"])
def test_a_folder_with_code_of_its_own_is_refused_and_the_code_never_run(
    tmp_path: Path, name: str
) -> None:
    auto_map = {"auto_map": {"AutoTokenizer": ["tokenization_own.Own", None]}}
    write(tmp_path / name, auto_map)
    write(tmp_path / "tokenization_own.py", b"raise SystemExit('run')")
    assert (
        refusal(tmp_path).what
        == "the tokenizer needs custom Python code, which tokenmill never runs"
    )


def test_the_configuration_beside_the_tokenizer_comes_with_it(tmp_path: Path) -> None:
    write(tmp_path / "tokenizer.json", JSON)
    write(tmp_path / "special_tokens_map.json", {"eos_token": "<a>", "pad_token": "<p>"})
    config = write(tmp_path / "tokenizer_config.json", CONFIG)
    found = load_tokenizer_file(str(tmp_path))
    assert found.config == {**CONFIG, "pad_token": "<p>"}
    assert found.config_data == config.read_bytes()


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


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A Hub, and an empty folder for the library's cache."""
    constants = pytest.importorskip("huggingface_hub.constants")
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.chdir(tmp_path)
        yield hub


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


MODEL = {"tokenizer.json": JSON, "tokenizer_config.json": json.dumps(CONFIG).encode()}


@pytest.mark.parametrize("name", ["gpt2", "owner/model", "owner/Model-3.2-1B"])
def test_a_name_on_the_hub_is_fetched_once_and_found_offline(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    commit = hub.commit(name, {**MODEL, "config.json": b'{"max_position_embeddings": 2048}'})
    found = load_tokenizer_file(name)
    assert found == TokenizerFile(
        "huggingface",
        JSON,
        config_data=MODEL["tokenizer_config.json"],
        origin=name,
        config=CONFIG,
        commit=commit,
    )
    hub.requests.clear()
    go_offline(monkeypatch)
    assert load_tokenizer_file(name) == found
    assert load_tokenizer_file(f"{name}@{commit}").data == JSON
    assert own_length(name) == (2048, "max_position_embeddings in config.json")
    assert hub.requests == []


def test_a_name_on_the_hub_may_have_a_revision(hub: FakeHub) -> None:
    old = hub.commit("gpt2", {"tokenizer.json": JSON}, "main", "v1")
    hub.commit("gpt2", {"tokenizer.json": JSON, "README.md": b"new"}, "main")
    assert load_tokenizer_file("gpt2@v1").commit == old
    assert load_tokenizer_file(f"gpt2@{old}").commit == old
    assert load_tokenizer_file("gpt2").commit != old
    error = refusal("gpt2@v2")
    assert error.why.endswith(
        "on the Hub: the model has no revision 'v2', and the cache does not have it"
    )


def test_all_files_are_of_one_commit(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    first = hub.commit("gpt2", MODEL)
    from huggingface_hub import HfApi

    download = HfApi.hf_hub_download

    def moving(api: HfApi, name: str, file: str, **options: Any) -> str:
        path = download(api, name, file, **options)
        hub.commit("gpt2", {"tokenizer_config.json": b"{}", "tokenizer.json": JSON})
        return path

    monkeypatch.setattr(HfApi, "hf_hub_download", moving)
    found = load_tokenizer_file("gpt2")
    assert (found.commit, found.config) == (first, CONFIG)


def test_a_configuration_that_cannot_be_fetched_is_not_left_out(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit("gpt2", MODEL)
    hub.faults = [Fault("tokenizer_config.json", 403, times=9)]
    assert refusal("gpt2").why.startswith(f"{NOTHING_HERE}the Hub refused the request (")


NOTHING_HERE = "no such file or folder; as a model on the Hub: "


@pytest.mark.parametrize(
    ("status", "headers", "why"),
    [
        (404, {"X-Error-Code": "RepoNotFound"}, "the Hub has no such model"),
        (401, {}, "the Hub refused the request (Client error '401 Unauthorized'"),
        (403, {"X-Error-Code": "GatedRepo"}, "the model is gated"),
        (503, {}, "the Hub refused the request"),
    ],
)
def test_a_name_that_the_hub_refuses_says_what_was_tried_and_why_it_failed(
    hub: FakeHub, status: int, headers: dict[str, str], why: str
) -> None:
    hub.faults = [Fault("/api/models/gpt2/", status, headers)]
    error = refusal("gpt2")
    assert (error.what, error.where) == ("cannot find the tokenizer", "gpt2")
    assert error.why.startswith(NOTHING_HERE + why)
    assert error.why.endswith(", and the cache does not have it")


def test_a_model_without_a_tokenizer_is_refused(hub: FakeHub) -> None:
    hub.commit("gpt2", {"README.md": b""})
    why = "the model has no tokenizer.json and no tokenizer_config.json"
    assert refusal("gpt2").why == NOTHING_HERE + why


def test_a_name_that_is_not_in_the_cache_is_refused_offline(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_offline(monkeypatch)
    why = "HF_HUB_OFFLINE is set, and the cache does not have it"
    assert refusal("gpt2").why == NOTHING_HERE + why


@pytest.mark.parametrize("name", ["x..y", "a--b/c", "gpt2.git", "a" * 100])
def test_a_name_that_no_model_can_have_is_not_blamed_on_the_network(
    hub: FakeHub, name: str
) -> None:
    assert refusal(name).why.startswith(f"{NOTHING_HERE}the name is not valid (")


def test_a_hub_that_cannot_be_reached_is_asked_once(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.commit("gpt2", MODEL)
    found = load_tokenizer_file("gpt2")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert load_tokenizer_file("gpt2") == found
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("waited"))
    why = refusal("owner/other").why
    assert why.startswith(f"{NOTHING_HERE}the Hub could not be reached (")


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    error = refusal("gpt2")
    assert error.why == f"{NOTHING_HERE}huggingface_hub is not installed"
    assert error.hint == install_command("hf")


def test_a_model_without_tokenizer_json_is_a_folder(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.ByT5Tokenizer().save_pretrained(tmp_path / "saved")
    files = {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    files |= {"onnx/tokenizer_config.json": b"", "model.safetensors": b"weights", "code.py": b"1/0"}
    commit = hub.commit("owner/model", files)
    found = load_tokenizer_file("owner/model")
    assert (found.kind, found.origin, found.commit) == ("python", "owner/model", commit)
    assert not [ask for ask in hub.requests if "onnx/" in ask or "safetensors" in ask]
    assert hub.asked("code.py") == 0
    with monkeypatch.context() as patch:
        go_offline(patch)
        assert load_tokenizer_file("owner/model").data == found.data
    with monkeypatch.context() as patch:
        patch.setattr(tokenizer_file, "MAX_TOKENIZER_BYTES", 100)
        assert refusal("owner/model").what == "the tokenizer is too large"
    hub.commit("owner/model", {**files, "config.json": b'{"auto_map": {}}'})
    assert (
        refusal("owner/model").what
        == "the tokenizer needs custom Python code, which tokenmill never runs"
    )

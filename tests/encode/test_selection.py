"""Which engines may encode a tokenizer, and what is said of the others."""

from __future__ import annotations

import importlib.machinery
import importlib.util

import pytest
from tokenizer_kit import as_file, byte_level_json, sentencepiece_json, shared_file

from tokenmill.encode.selection import Candidates, load_engine, rank_engines
from tokenmill.encode.tokenizer_file import TokenizerFile, load_tokenizer_file
from tokenmill.errors import EngineError, UserError

NOT_INSTALLED = "it is not installed: pip install 'tokenmill[fast]'"
BYTE_LEVEL_FILE = as_file(byte_level_json())
LLAMA_FILE = as_file(sentencepiece_json())
NFC_FILE = as_file(byte_level_json(normalizer={"type": "NFC"}))
DROPOUT_FILE = as_file(byte_level_json(model={"dropout": 0.5}))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Both engines, whatever this machine has; a test takes away what it wants missing."""
    names = {"fastokens", "gigatoken"}

    def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, None) if name in names else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return names


def test_the_table_ranks_fastokens_then_gigatoken_then_the_reference(installed: set[str]) -> None:
    expected = Candidates(("fastokens", "gigatoken", "reference"), {})
    assert rank_engines(BYTE_LEVEL_FILE, False) == expected
    assert rank_engines(LLAMA_FILE, True) == expected


def test_an_engine_that_the_gate_refuses_is_left_out_with_the_reason(installed: set[str]) -> None:
    objections = {"gigatoken": "a normalizer"}
    assert rank_engines(NFC_FILE, False) == Candidates(("fastokens", "reference"), objections)


def test_the_reference_is_left_where_no_engine_is_exact(installed: set[str]) -> None:
    objections = {"fastokens": "dropout", "gigatoken": "dropout"}
    assert rank_engines(DROPOUT_FILE, False) == Candidates(("reference",), objections)


def test_an_engine_that_is_not_installed_is_left_out_with_the_command_that_installs_it(
    installed: set[str],
) -> None:
    installed.remove("fastokens")
    objections = {"fastokens": NOT_INSTALLED}
    assert rank_engines(BYTE_LEVEL_FILE, False) == Candidates(
        ("gigatoken", "reference"), objections
    )
    installed.clear()
    objections = {"fastokens": NOT_INSTALLED, "gigatoken": NOT_INSTALLED}
    assert rank_engines(BYTE_LEVEL_FILE, False) == Candidates(("reference",), objections)


@pytest.mark.parametrize("wanted", ["fastokens", "gigatoken", "reference"])
def test_the_engine_that_is_asked_for_is_the_only_candidate(
    installed: set[str], wanted: str
) -> None:
    assert rank_engines(BYTE_LEVEL_FILE, False, wanted) == Candidates((wanted,), {})


def test_an_engine_that_is_asked_for_and_not_exact_is_refused(installed: set[str]) -> None:
    with pytest.raises(UserError, match="gigatoken is not exact") as caught:
        rank_engines(NFC_FILE, False, "gigatoken")
    assert caught.value.why == "a normalizer"


def test_an_engine_that_is_asked_for_and_not_installed_is_refused(installed: set[str]) -> None:
    installed.clear()
    with pytest.raises(UserError) as caught:
        rank_engines(BYTE_LEVEL_FILE, False, "fastokens")
    assert caught.value.why == NOT_INSTALLED


def test_an_engine_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    with pytest.raises(UserError, match="there is no engine 'fast'") as caught:
        rank_engines(BYTE_LEVEL_FILE, False, "fast")
    assert caught.value.why == "the engines are fastokens, gigatoken, reference"


def test_sentencepiece_models_are_the_references(installed: set[str]) -> None:
    found = rank_engines(TokenizerFile("sentencepiece", b"\n"), False)
    assert found.names == ("reference",)
    assert sorted(found.objections) == ["fastokens", "gigatoken"]


def test_rank_files_have_engines_for_text_and_only_the_reference_for_control_tokens(
    installed: set[str],
) -> None:
    file = load_tokenizer_file(str(shared_file("tokenizers", "gpt2.tiktoken")))
    assert rank_engines(file, False).names == ("fastokens", "gigatoken", "reference")
    assert rank_engines(file, True).names == ("reference",)


def test_a_rank_file_whose_split_has_no_equal_is_the_references(installed: set[str]) -> None:
    found = rank_engines(TokenizerFile("tiktoken", b"YQ== 0", "o200k_base"), False)
    assert found.names == ("reference",)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("reference", "HuggingFaceReference"), ("fastokens", "FastokensEngine")],
)
def test_an_engine_is_loaded_by_its_name(name: str, kind: str) -> None:
    if name != "reference":
        pytest.importorskip(name)
    assert type(load_engine(name, BYTE_LEVEL_FILE, False, 1 << 30)).__name__ == kind


def test_gigatoken_is_loaded_with_the_reference_behind_it_where_it_may_differ() -> None:
    pytest.importorskip("gigatoken")
    loaded = load_engine("gigatoken", BYTE_LEVEL_FILE, False, 1 << 30)
    assert (type(loaded).__name__, loaded.name) == ("RoutedEngine", "gigatoken")
    loaded = load_engine("gigatoken", LLAMA_FILE, False, 1 << 30)
    assert type(loaded).__name__ == "GigatokenEngine"


@pytest.mark.parametrize("name", ["fastokens", "gigatoken"])
def test_an_engine_that_fails_to_load_is_an_engine_error(name: str) -> None:
    pytest.importorskip(name)
    with pytest.raises(EngineError, match=f"{name} cannot load the tokenizer"):
        load_engine(name, as_file(byte_level_json(model={"type": "WordPiece"})), False, 1 << 30)


def test_a_fast_engine_cannot_be_loaded_for_a_sentencepiece_model() -> None:
    with pytest.raises(EngineError, match="cannot encode a sentencepiece tokenizer"):
        load_engine("fastokens", TokenizerFile("sentencepiece", b"\n"), False, 1 << 30)

"""Which engines may encode a tokenizer, and what is said of the others."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import tomllib
from pathlib import Path

import pytest
import tokenizers
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    as_file,
    byte_level_json,
    sentencepiece_json,
    sequence,
    split,
)
from trained_kit import trained

from tokenmill.core.errors import EngineError, UserError
from tokenmill.core.installed import install_command
from tokenmill.encode import engine_ranking
from tokenmill.encode.engine_ranking import MEASURED_VERSIONS, Candidates, load_engine, rank_engines
from tokenmill.encode.tokenizer_json import read_tokenizer
from tokenmill.encode.words.patterns import LLAMA3_SPLIT

NOT_INSTALLED = f"it is not installed: {install_command('fast')}"
BYTE_LEVEL_FILE = as_file(byte_level_json())
LLAMA_FILE = as_file(sentencepiece_json())
DIGITS_FILE = as_file(
    byte_level_json(
        pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, BYTE_LEVEL)
    )
)
DIGITS = "pre-tokenizer Digits + ByteLevel"
DROPOUT_FILE = as_file(byte_level_json(model={"dropout": 0.5}, pre_tokenizer=None))
WORD_PIECE_FILE = as_file(
    byte_level_json(model={"type": "WordPiece"}, pre_tokenizer={"type": "BertPreTokenizer"})
)
NOT_LOCAL = "normalizer Prepend"
NOT_SPLIT = "no pre-tokenizer that always splits at spaces"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """fastokens, whatever this machine has; a test takes it away where it wants it missing."""
    names = {"fastokens"}

    def find_spec(name: str) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, None) if name in names else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return names


REFERENCE_FOR_SMALL = True


def set_versions(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """What is said to be installed."""
    monkeypatch.setattr(engine_ranking, "installed_version", versions.__getitem__)


def test_the_table_ranks_what_is_exact_for_a_tokenizer(installed: set[str]) -> None:
    names: tuple[str, ...] = ("fastokens", "native", "memo", "reference")
    assert rank_engines(BYTE_LEVEL_FILE, False) == Candidates(names, {})
    names = ("native", "fastokens", "reference")
    order = ("native", "fastokens", "memo", "reference")
    expected = Candidates(names, {"memo": NOT_LOCAL}, order=order)
    assert rank_engines(LLAMA_FILE, True) == expected


def test_inputs_that_an_audit_would_encode_whole_go_to_the_reference(installed: set[str]) -> None:
    for file in (BYTE_LEVEL_FILE, LLAMA_FILE):
        small = rank_engines(file, False, num_bytes=3_000_000)
        assert (small.names, small.remarks) == (("reference",), {})
    assert rank_engines(BYTE_LEVEL_FILE, False, num_bytes=3_000_001).names[0] == "fastokens"
    assert rank_engines(BYTE_LEVEL_FILE, False, "native", num_bytes=1).names == ("native",)


def test_compiled_code_comes_first_where_it_saves_more_than_its_compilation_takes(
    installed: set[str],
) -> None:
    first = [rank_engines(LLAMA_FILE, True, num_bytes=n).names[0] for n in (2**25, 2**25 + 1)]
    assert first == ["fastokens", "native"]


def test_an_engine_that_the_gate_refuses_is_left_out_with_the_reason(installed: set[str]) -> None:
    expected = Candidates(("native", "memo", "reference"), {"fastokens": DIGITS})
    assert rank_engines(DIGITS_FILE, False) == expected


def test_memo_takes_what_fast_engines_cannot_where_texts_may_be_cut(installed: set[str]) -> None:
    objections = {
        "fastokens": "model WordPiece",
        "native": "WordPiece with steps other than BERT's",
    }
    expected = Candidates(("memo", "reference"), objections)
    assert rank_engines(WORD_PIECE_FILE, False) == expected
    assert rank_engines(WORD_PIECE_FILE, True) == expected


UNTYPED = {"unk_token": "[UNK]", "vocab": {"[UNK]": 0}}
UNTYPED_PIECES = {"continuing_subword_prefix": "##", "max_input_chars_per_word": 100}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({**UNTYPED, **UNTYPED_PIECES}, "WordPiece"),
        ({**UNTYPED, "max_input_chars_per_word": 100}, "WordLevel"),
        (UNTYPED, "WordLevel"),
        ({**UNTYPED, **UNTYPED_PIECES, "merges": []}, "BPE"),
        ({**UNTYPED, **UNTYPED_PIECES, "merges": None}, "WordPiece"),
        ({"vocab": [["[UNK]", 0.0]], "unk_id": 0}, "Unigram"),
        ({"vocab": [["[UNK]", 0.0]], "unk_id": 0, "merges": []}, "Unigram"),
    ],
)
def test_a_model_without_a_type_has_that_of_the_library(model: Json, expected: str) -> None:
    file = as_file({**byte_level_json(), "pre_tokenizer": None, "model": model})
    library = tokenizers.Tokenizer.from_str(file.data.decode())
    assert type(library.model).__name__ == expected
    assert read_tokenizer(file.data)["model"]["type"] == expected


def test_the_reference_is_left_where_no_engine_is_exact(installed: set[str]) -> None:
    objections = {"fastokens": "dropout", "native": "dropout", "memo": NOT_SPLIT}
    assert rank_engines(DROPOUT_FILE, False) == Candidates(("reference",), objections)


def test_an_engine_that_is_not_installed_is_left_out_with_the_command_that_installs_it(
    installed: set[str],
) -> None:
    installed.clear()
    missing = {"fastokens": NOT_INSTALLED}
    expected = Candidates(("native", "memo", "reference"), missing, frozenset(missing))
    assert rank_engines(BYTE_LEVEL_FILE, False) == expected


@pytest.mark.parametrize("version", ["0.3.3", "0.3.6", "0.10.0", "0.3.5rc1"])
def test_an_engine_of_a_version_that_was_not_measured_is_left_out_with_the_one_to_install(
    installed: set[str], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    set_versions(monkeypatch, fastokens=version)
    why = f"version {version} is not tested: pip install 'fastokens>=0.3.4,<=0.3.5'"
    names = ("native", "memo", "reference")
    expected = Candidates(names, {"fastokens": why}, frozenset({"fastokens"}))
    assert rank_engines(BYTE_LEVEL_FILE, False) == expected


def test_nothing_is_told_of_engines_that_no_install_would_put_first(
    installed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_versions(monkeypatch, fastokens="0.4.0")
    assert rank_engines(LLAMA_FILE, False).remarks == {}
    assert rank_engines(WORD_PIECE_FILE, False).remarks == {}


def test_the_extra_installs_the_measured_versions() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["optional-dependencies"]["fast"] == [
        f"{name}>={oldest},<={newest}" for name, (oldest, newest) in MEASURED_VERSIONS.items()
    ]


@pytest.mark.parametrize("wanted", ["fastokens", "native", "memo", "reference"])
def test_the_engine_that_is_asked_for_is_the_only_candidate(
    installed: set[str], wanted: str
) -> None:
    assert rank_engines(BYTE_LEVEL_FILE, False, wanted) == Candidates((wanted,), {})


def test_an_engine_that_is_asked_for_and_not_exact_is_refused(installed: set[str]) -> None:
    with pytest.raises(UserError, match="fastokens is not exact") as caught:
        rank_engines(DIGITS_FILE, False, "fastokens")
    assert caught.value.why == DIGITS


def test_an_engine_that_does_not_exist_is_refused_with_the_names_of_those_that_do() -> None:
    with pytest.raises(UserError, match="unknown engine 'fast'") as caught:
        rank_engines(BYTE_LEVEL_FILE, False, "fast")
    assert caught.value.why == "the engines are fastokens, native, memo, reference"


def test_rank_files_have_engines_for_text_and_only_the_reference_for_control_tokens(
    installed: set[str],
) -> None:
    file = trained("gpt2.tiktoken")
    assert rank_engines(file, False).names == ("fastokens", "reference")
    found = rank_engines(file, True)
    assert found.names == ("reference",)
    assert found.objections["memo"] == "it cannot read this tiktoken tokenizer"


def test_fastokens_is_loaded_with_the_reference_behind_it_where_it_may_differ() -> None:
    pytest.importorskip("fastokens")
    llama3 = as_file(byte_level_json(pre_tokenizer=sequence(split(LLAMA3_SPLIT), BYTES_ONLY)))
    loaded = load_engine("fastokens", llama3, False, 1 << 30)
    assert (type(loaded).__name__, loaded.name) == ("RoutedEngine", "fastokens")


def test_an_engine_that_fails_to_load_is_an_engine_error() -> None:
    pytest.importorskip("fastokens")
    word_piece = as_file(byte_level_json(model={"type": "WordPiece"}))
    with pytest.raises(EngineError, match="fastokens cannot load the tokenizer"):
        load_engine("fastokens", word_piece, False, 1 << 30)


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Precompiled", "precompiled_charsmap": ""},
        {"type": "Precompiled"},
        {"type": "Replace", "pattern": {"String": "a"}},
        {},
    ],
)
def test_a_damaged_tokenizer_is_left_to_the_reference_which_says_why(
    normalizer: dict[str, object],
) -> None:
    damaged = as_file(byte_level_json(normalizer=normalizer))
    assert rank_engines(damaged, False).names == ("reference",)
    with pytest.raises(UserError, match="cannot load the tokenizer"):
        load_engine("reference", damaged, False, 1 << 20)

"""Which tokenizers are tried in a process of their own first, and how a trial fails."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    added_token,
    as_file,
    byte_level_json,
    replace,
    sentencepiece_json,
    sequence,
    split,
)
from trained_kit import JSON_NAMES, trained

from tokenmill.core.errors import UserError
from tokenmill.encode import probe
from tokenmill.encode.probe import unknown_step
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.encode.words.patterns import DEEPSEEK3_SPLITS, LLAMA3_SPLIT, O200K_SPLIT

OWN = "an unknown regular expression in "
LONGER = "steps that can make texts much longer"


def normalizers(*steps: Json) -> Json:
    return {"type": "Sequence", "normalizers": list(steps)}


def precompiled(*strings: bytes) -> Json:
    """A table of which the trie is empty, with some strings."""
    table = bytes(4) + b"".join(string + b"\0" for string in strings)
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def word_piece(max_characters: int) -> Json:
    vocab = {"a": 0, "[UNK]": 1}
    model = {"type": "WordPiece", "vocab": vocab, "max_input_chars_per_word": max_characters}
    return byte_level_json() | {"model": model}


@pytest.mark.parametrize(
    ("tokenizer", "unknown"),
    [
        (byte_level_json(), ""),
        (sentencepiece_json(), ""),
        (byte_level_json(pre_tokenizer=sequence(split(LLAMA3_SPLIT), BYTES_ONLY)), ""),
        (byte_level_json(pre_tokenizer=sequence(split(O200K_SPLIT), BYTES_ONLY)), ""),
        (byte_level_json(pre_tokenizer=sequence(*map(split, DEEPSEEK3_SPLITS), BYTES_ONLY)), ""),
        (byte_level_json(normalizer=precompiled(b"x" * 60)), ""),
        (word_piece(200), ""),
        (byte_level_json(pre_tokenizer=split(r"\w+|\W+")), OWN + "Split"),
        (byte_level_json(pre_tokenizer=sequence(sequence(split("(a+)+$")))), OWN + "Split"),
        (
            byte_level_json(
                normalizer={"type": "Replace", "pattern": {"Regex": "a*"}, "content": ""}
            ),
            OWN + "Replace",
        ),
        (byte_level_json(normalizer=replace("a", "b" * 65)), LONGER),
        (byte_level_json(normalizer=normalizers(*[replace("a", "aa")] * 7)), LONGER),
        (byte_level_json(pre_tokenizer=sequence(*[BYTE_LEVEL] * 4)), LONGER),
        (byte_level_json(normalizer={"type": "Prepend", "prepend": "x" * 65}), LONGER),
        (byte_level_json(normalizer=precompiled(b"x" * 300)), LONGER),
        (
            byte_level_json(
                normalizer=replace("x", ""), added_tokens=[added_token("x", 259, normalized=True)]
            ),
            "an added token that its normalizer removes",
        ),
        (byte_level_json(normalizer={"type": "Sequence"}), "a step that cannot be read"),
        (word_piece(1 << 30), "a WordPiece model without a limit on word length"),
    ],
)
def test_a_tokenizer_is_tried_if_a_step_is_not_known_to_end(tokenizer: Json, unknown: str) -> None:
    assert unknown_step(as_file(tokenizer)) == unknown


@pytest.mark.parametrize("name", JSON_NAMES)
def test_pipelines_of_published_tokenizers_need_no_trial(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "Child", None)
    file = trained(name)
    assert probe.require_harmless(file) is file


def with_regex(pattern: str) -> TokenizerFile:
    return as_file(byte_level_json(pre_tokenizer=sequence(split(pattern), BYTES_ONLY)))


def test_a_harmless_regex_passes_its_trial() -> None:
    file = with_regex(r"\w+|\W+")
    assert probe.require_harmless(file) is file


def test_a_trial_that_hangs_is_ended_and_shows_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_SECONDS", 2.0)
    with pytest.raises(UserError) as caught:
        probe.require_harmless(with_regex(r"(\w+\s?)+$"))
    assert caught.value.what == "cannot load the tokenizer"
    assert caught.value.why.startswith(f"it has {OWN}Split, and a trial took too long: ")


def test_an_added_token_that_is_normalized_to_nothing_hangs_in_its_trial_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "PROBE_SECONDS", 2.0)
    monkeypatch.setattr(probe, "PROBE_BYTES", 500_000_000)
    added = [added_token("x", 259, normalized=True)]
    file = as_file(byte_level_json(normalizer=replace("x", ""), added_tokens=added))
    assert probe.probe(file).startswith("it has an added token that its normalizer removes, and a ")


def test_a_trial_that_takes_too_much_memory_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_BYTES", 500_000_000)
    steps = normalizers(*[replace("S", "S" * 1_000)] * 3)
    why = probe.probe(as_file(byte_level_json(normalizer=steps)))
    assert why.startswith(f"it has {LONGER}, and a trial took more than 500,")
    assert "normalizer on " in why


def test_a_trial_is_of_documents_where_they_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PROBE_BYTES", 500_000_000)
    steps = normalizers(*[replace("QZ", "QZ" * 1_000)] * 3)
    file = as_file(byte_level_json(normalizer=steps))
    assert probe.probe(file) == ""
    assert probe.probe(file, ["a", "so: QZ"]).endswith("normalizer on 'so: QZ'")


def test_a_failure_of_the_library_is_left_to_the_process_that_needs_it(tmp_path: Path) -> None:
    tokenizer: Any = byte_level_json(pre_tokenizer=split("("))
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert probe.probe(load_tokenizer_file(tmp_path / "tokenizer.json")) == ""

"""GPT-2 and Llama 3, extended and trimmed on real text; skipped where their files are not here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.vocabulary.changing.base import Base, open_base
from tokenmill.vocabulary.changing.extend import extend
from tokenmill.vocabulary.changing.trim import trim
from vocabulary.changing.changing_kit import boundaries, counted, library

DATA = Path(__file__).parents[4] / "shared" / "data"
pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="published tokenizers and FLORES are not beside the repository"
)


def lines(language: str, part: str = "dev") -> list[str]:
    return (DATA / "flores" / f"{language}.{part}").read_text(encoding="utf-8").split("\n")


def opened(name: str) -> tuple[TokenizerFile, Base]:
    file = load_tokenizer_file(DATA / "tokenizers" / name)
    return file, open_base(file)


def tokens(tokenizer: Tokenizer, texts: list[str]) -> list[list[str]]:
    found: list[Any] = tokenizer.encode_batch(texts, add_special_tokens=False)
    return [encoding.tokens for encoding in found]


def test_llama_3_keeps_every_id() -> None:
    file, base = opened("llama3.tiktoken")
    found = extend(base, counted(base, lines("tha_Thai")), 400)
    extended = library(found.document)
    assert extended.get_vocab_size() == 128_256 + 400
    ours, theirs = found.document["model"]["merges"], base.document["model"]["merges"]
    assert ours[: len(theirs)] == theirs
    assert [extended.token_to_id(token) for token in found.tokens] == list(range(128_256, 128_656))
    reference = load_reference(file, control_tokens=False)
    specials = {name: extended.token_to_id(name) for name in reference.special_tokens}
    assert specials == reference.special_tokens
    assert extended.encode("a").ids == [128_000, 64]
    held_out = [*lines("tha_Thai", "devtest")[:200], *lines("eng_Latn", "devtest")[:200]]
    before = tokens(library(base.document), held_out)
    after = tokens(extended, held_out)
    assert all(boundaries(new) <= boundaries(old) for new, old in zip(after, before, strict=True))
    assert after[200:] == before[200:]  # English holds no Thai


def test_gpt2_is_trimmed_to_what_german_needs() -> None:
    _, base = opened("gpt2.json")
    texts = lines("deu_Latn")
    found = trim(base, counted(base, texts), 8_000)
    trimmed = library(found.document)
    assert trimmed.get_vocab_size() == 8_000
    assert found.tokens_after == found.tokens_before
    assert tokens(trimmed, texts) == tokens(library(base.document), texts)
    assert trimmed.decode(trimmed.encode("Sphinx of black quartz 🙂").ids) == (
        "Sphinx of black quartz 🙂"
    )

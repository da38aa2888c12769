"""native with SentencePiece's model files: ids are the library's, wherever texts are cut."""

from __future__ import annotations

import functools
import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kit import documents
from trained_kit import SENTENCES

from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Engine, Reference
from tokenmill.encode.engine_ranking import load_engine, rank_engines
from tokenmill.encode.kinds import load_reference
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.words.sentencepiece import NORMALIZER, TRAINER, write_field

sentencepiece = pytest.importorskip("sentencepiece")

TEXTS = [
    *SENTENCES,
    "ﬁne ½ … “quoted” 　wide",
    "  lead  double\ttab\n",
    "▁▁ marks ▁x",
    "e\u0301 <=> \u0338",
]
CHARACTERS = " ▁ab.,\n\t1中éж\u0301😀x\u3000\u00a0½ﬁ\u200b\u0338=ё각ｶﾞ\u1100\u1161…\u00a8\r"
LLAMA_2 = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "byte_fallback": True,
    "allow_whitespace_only_pieces": True,
}
KINDS: dict[str, dict[str, Any]] = {
    "Llama 2": LLAMA_2,
    "user-defined symbols": LLAMA_2 | {"user_defined_symbols": ["xa", "<s1>", "1", "\n", "\n\n"]},
    "no space before the text": LLAMA_2 | {"add_dummy_prefix": False},
    "<unk>, spaces as they are": LLAMA_2 | {"byte_fallback": False, "character_coverage": 0.98},
}
MODELS = [("bpe", name) for name in KINDS]


@functools.cache
def trained(model_type: str, name: str) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 5),
        model_writer=model,
        model_type=model_type,
        vocab_size=1000,
        hard_vocab_limit=False,
        minloglevel=2,
        **KINDS[name],
    )
    return model.getvalue()


@functools.cache
def engines(model_type: str, name: str) -> tuple[Engine, Reference]:
    file = TokenizerFile("sentencepiece", trained(model_type, name))
    assert rank_engines(file, False).names == ("native", "reference")
    return load_engine("native", file, False, 1 << 26), load_reference(file, False)


def assert_equal(engine: Engine, reference: Reference, texts: list[str]) -> None:
    found, expected = documents(engine.encode(texts)), documents(reference.encode(texts))
    different = [text for text, a, b in zip(texts, found, expected, strict=True) if a != b]
    assert different == []


@pytest.mark.parametrize(("model_type", "name"), MODELS)
def test_ids_are_those_of_the_library(model_type: str, name: str) -> None:
    engine, reference = engines(model_type, name)
    characters = [chr(c) for c in (*range(0x500), *range(0x500, 0xD800, 41))]
    contexts = [f"a{c}b {c} {c}{c}\n▁{c} " for c in characters]
    spaces = ["", " ", "   ", "▁", "▁▁", "\u200b", " \u200b ", " a", "a ▁", "\n ", "\u3000"]
    assert_equal(engine, reference, [*contexts, *spaces, *TEXTS, " ".join(TEXTS)])
    assert_equal(engine, reference, adversarial_texts(reference.special_tokens))


@pytest.mark.parametrize(("model_type", "name"), MODELS)
def test_any_text_has_the_ids_of_the_library(model_type: str, name: str) -> None:
    engine, reference = engines(model_type, name)

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.text(st.sampled_from(CHARACTERS) | st.characters(exclude_categories=["Cs"])))
    )
    def check(texts: list[str]) -> None:
        assert_equal(engine, reference, texts)

    check()


def with_pieces(*pieces: bytes) -> TokenizerFile:
    """The model of Llama 2's form with more pieces."""
    more = b"".join(write_field(1, piece) for piece in pieces)
    return TokenizerFile("sentencepiece", trained("bpe", "Llama 2") + more)


def piece(text: str, score: float, kind: int = 1) -> bytes:
    return write_field(1, text.encode()) + write_field(2, score) + write_field(3, kind)


def made_of(*pieces: bytes) -> tuple[Engine, Reference]:
    """A model of the given pieces after <unk>, with ids from 1 on."""
    parts = [write_field(1, part) for part in (piece("<unk>", 0.0, 2), *pieces)]
    parts.append(write_field(TRAINER, write_field(3, 2)))
    parts.append(write_field(NORMALIZER, write_field(1, b"identity") + write_field(4, 0)))
    file = TokenizerFile("sentencepiece", b"".join(parts))
    assert rank_engines(file, False).names == ("native", "reference")
    return load_engine("native", file, False, 1 << 26), load_reference(file, False)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.sampled_from("aab▁ "), max_size=60)))
def test_of_pieces_with_equal_scores_the_leftmost_is_joined_first(texts: list[str]) -> None:
    engine, reference = tied()
    assert_equal(engine, reference, texts)


@functools.cache
def tied() -> tuple[Engine, Reference]:
    scores = {"▁": -9.0, "a": -9.0, "b": -9.0, "ab": -1.0, "ba": -1.0, "aba": -1.0, "aa": -2.0}
    return made_of(*(piece(text, score) for text, score in scores.items()), piece("▁a", -2.0))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(st.sampled_from("ab☃▁ \n"), max_size=40)))
def test_user_defined_symbols_are_matched_before_characters(texts: list[str]) -> None:
    engine, reference = symbols()
    assert_equal(engine, reference, texts)


@functools.cache
def symbols() -> tuple[Engine, Reference]:
    known = [piece(text, -9.0) for text in "▁ab"]
    joined = [piece("ab", -1.0), piece("▁a", -20.0), piece("a\n", 0.0)]
    whole = ["\n", "\n\n\n\n", "▁▁", "☃", "b▁a", "a b"]
    return made_of(*known, *joined, *(piece(text, 0.0, 4) for text in whole))


@pytest.mark.parametrize(
    ("pieces", "objection"),
    [
        ([piece("▁ü", -7000.0, 5)], "a piece of an unsupported type"),
        ([piece("x☃", -7000.0)], "a piece with a character outside the pieces"),
        ([piece("☃", 0.0, 3)], "a control token of one character"),
        ([piece("=" * 65, 0.0, 4)], "a user-defined symbol that is too long"),
        ([piece("<s>", 0.0)], "pieces with equal texts"),
        ([piece("xq", float("nan"))], "a score that is not a finite number"),
        ([piece("x" * 129, -7000.0)], "a piece that is too long"),
        ([b"\xff"], "an unreadable model"),
    ],
)
def test_models_that_are_not_known_exactly_are_the_references(
    pieces: list[bytes], objection: str
) -> None:
    found = rank_engines(with_pieces(*pieces), False)
    assert found.names == ("reference",)
    assert found.objections["native"].startswith(objection)


@pytest.mark.parametrize("number", [TRAINER, NORMALIZER])
def test_a_message_that_the_library_merges_with_another_is_the_references(number: int) -> None:
    model = trained("bpe", "Llama 2") + write_field(number, b"")
    found = rank_engines(TokenizerFile("sentencepiece", model), False)
    assert found.names == ("reference",)
    assert found.objections["native"].startswith("two sets")


@pytest.mark.parametrize(
    ("name", "changes", "objection"),
    [
        ("Llama 2", {"treat_whitespace_as_suffix": True}, "spaces that do not become a ▁"),
        ("Llama 2", {"normalization_rule_name": "nmt_nfkc"}, "a normalizer with a table"),
        ("Llama 2", {"remove_extra_whitespaces": True}, "remove_extra_whitespaces"),
        ("Llama 2", {"model_type": "char"}, "a model of type 4"),
    ],
)
def test_options_that_are_not_known_exactly_are_the_references(
    name: str, changes: dict[str, Any], objection: str
) -> None:
    model = io.BytesIO()
    options = {"model_type": "bpe", "vocab_size": 1000, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 5), model_writer=model, **options | KINDS[name] | changes
    )
    found = rank_engines(TokenizerFile("sentencepiece", model.getvalue()), False)
    assert found.objections["native"].startswith(objection)

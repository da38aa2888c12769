"""memo against the reference: the same ids, whatever the table has seen, forgotten or mixed up."""

from __future__ import annotations

import functools

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_kit import (
    BERT_SPLIT,
    CHARACTERS,
    DIGITS,
    LOWERCASE,
    NFC,
    NFKC,
    PUBLISHED,
    WHITESPACE,
    WHITESPACE_SPLIT,
    bert_normalizer,
    memo_and_reference,
    normalizers,
    pipeline_json,
    with_charsmap,
)
from tokenizer_kit import (
    BYTE_LEVEL,
    BYTES_ONLY,
    Json,
    added_token,
    documents,
    replace,
    sequence,
    split,
)

from tokenmill.encode.adversarial import adversarial_texts
from tokenmill.encode.engine import Reference
from tokenmill.encode.engines.chunks import MemoEngine
from tokenmill.encode.exactness import compare_tokens

CACHE_BYTES = 1 << 30
TRAINING_TEXTS = [
    "The quick brown fox jumps over the lazy dog. It's 3.14, don't you know?",
    "Ein Text mit Umlauten: äöü, und einem Zeilenende.\n",
    "def f(x):\n    return x + 1\n",
    "日本語のテキスト 中文 и по-русски",
]
MASK = added_token("<mask>", 0, special=True, lstrip=True)
ADDED = (MASK, added_token("a.b", 0), added_token("Aß", 0, normalized=True))
ATOMS = [
    *(" ", " ", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u200b", "\ufeff", "\x00"),
    *("a", "B", "the", "Été", "e\u0301", "ß", "ſ", "İ", "0", "12345", "½", "x1", "Ⅷ"),
    *("'s", "'S", "'re", "s'", ".", "..", "a.b", "a.", "(x)", "``", "''", "=", "=\u0338", "_", "#"),
    *("\u0301", " \u0301", "\u00b4", "\u0600", "\u0601", "\u0d4e", "\u200d", "\ufdfa", "\ufffd"),
    *("中", "文 ", "日本語", "ア", "가", "\u1100\u1161", "😀", "\U00020000", "▁", "▁a", "\ufe70"),
    *(
        "<mask>",
        "<mask",
        "mask>",
        "<|endoftext|>",
        "Aß",
        "aß",
        "AẞB",
        "a" * 127,
        "é" * 64,
        "b" * 129,
    ),
]
TEXTS = st.lists(st.lists(st.sampled_from(ATOMS), max_size=8).map("".join), max_size=4)


@functools.cache
def engines(name: str, control_tokens: bool) -> tuple[MemoEngine, Reference]:
    pipelines = PUBLISHED if name in PUBLISHED else with_charsmap()
    return memo_and_reference(pipeline_json(*pipelines[name], *ADDED), control_tokens)


@pytest.mark.parametrize("control_tokens", [False, True], ids=["text", "control"])
@pytest.mark.parametrize("name", [*PUBLISHED, "XLM-R and T5", "Pegasus", "ALBERT"])
def test_published_pipelines_give_the_ids_of_the_reference(name: str, control_tokens: bool) -> None:
    memo, reference = engines(name, control_tokens)
    texts = adversarial_texts(["<mask>", "a.b"])
    compare_tokens("memo", texts, memo.encode(texts), reference.encode(texts))


WITH_CHARSMAP = ["XLM-R and T5", "Pegasus", "ALBERT"]
SOME = [
    *("BERT", "words and marks", "Unigram, NFKC", "CLIP", "DeBERTa", "StarCoder", "gpt-oss"),
    *("DeepSeek-V3", *WITH_CHARSMAP),
]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(SOME), st.booleans(), TEXTS)
def test_any_text_has_the_ids_of_the_reference(
    name: str, control_tokens: bool, texts: list[str]
) -> None:
    memo, reference = engines(name, control_tokens)
    assert documents(memo.encode(texts)) == documents(reference.encode(texts))


WORDS_THEN_BYTES = sequence(DIGITS, BYTE_LEVEL)
PREFIXED = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
TRAPS = {
    "nothing splits words from digits": (None, split(r"\s+"), "a1"),
    "ByteLevel after the split": (None, sequence(WHITESPACE_SPLIT, BYTES_ONLY), "a1.b"),
    "a digit that begins a word": (None, sequence(split(PREFIXED), DIGITS, WHITESPACE), "99b"),
    "a contraction that is split later": (None, sequence(BYTE_LEVEL, BERT_SPLIT), "'sx"),
    "spaces around Chinese": (bert_normalizer(), BYTE_LEVEL, "中  b"),
    "a stroke through =": (NFC, BERT_SPLIT, "a=\u0338"),
    "a special string that is text": (*PUBLISHED["CLIP"], "a<|endoftext|>b"),
    "capitals that are replaced": (
        normalizers(LOWERCASE, replace("a1", "b")),
        WORDS_THEN_BYTES,
        "A1",
    ),
}


@pytest.mark.parametrize("name", TRAPS)
def test_cuts_that_look_safe_and_are_not(name: str) -> None:
    *steps, text = TRAPS[name]
    memo, reference = memo_and_reference(pipeline_json(*steps))
    assert documents(memo.encode([text])) == documents(reference.encode([text]))


@pytest.mark.parametrize(
    ("content", "text", "special"),
    [
        ("(1)", "(1)", True),
        ("\u2474", "(1)", False),
        ("x<", "X<", False),
        ("İ.", "i\u0307.", False),
    ],
)
def test_added_tokens_are_not_cut(content: str, text: str, special: bool) -> None:
    token = added_token(content, 0, special=special, normalized=not special)
    memo, reference = memo_and_reference(
        pipeline_json(normalizers(NFKC, LOWERCASE), WHITESPACE, token), True
    )
    assert documents(reference.encode([text])) == [[4 * len(CHARACTERS) + 1]]
    assert documents(memo.encode([text])) == documents(reference.encode([text]))


def trained(kind: str) -> Json:
    """A model of some hundred tokens, and what it is published with."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    unk = {"special_tokens": ["<unk>"], "vocab_size": 300, "show_progress": False}
    model, trainer, split = {
        "WordPiece": (
            models.WordPiece(unk_token="<unk>", max_input_chars_per_word=9),
            trainers.WordPieceTrainer(**unk),
            pre_tokenizers.BertPreTokenizer(),
        ),
        "WordLevel": (
            models.WordLevel(unk_token="<unk>"),
            trainers.WordLevelTrainer(**unk),
            pre_tokenizers.Whitespace(),
        ),
        "Unigram": (
            models.Unigram(),
            trainers.UnigramTrainer(unk_token="<unk>", **unk),
            pre_tokenizers.Metaspace(),
        ),
        "BPE with <unk>": (
            models.BPE(unk_token="<unk>", fuse_unk=True),
            trainers.BpeTrainer(**unk),
            pre_tokenizers.Metaspace(),
        ),
        "BPE with ends of words": (
            models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"),
            trainers.BpeTrainer(end_of_word_suffix="</w>", **unk),
            pre_tokenizers.BertPreTokenizer(),
        ),
    }[kind]
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = split
    if isinstance(split, pre_tokenizers.BertPreTokenizer):
        tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.train_from_iterator(TRAINING_TEXTS * 5, trainer)
    found: Json = msgspec.json.decode(tokenizer.to_str())
    return found


def with_byte_fallback(tokenizer: Json) -> Json:
    model = tokenizer["model"]
    bytes_ = [[f"<0x{byte:02X}>", -20.0] for byte in range(256)]
    fallback = {"byte_fallback": True, "vocab": [*model["vocab"], *bytes_]}
    return {**tokenizer, "model": {**model, **fallback}}


KINDS = ["WordPiece", "WordLevel", "Unigram", "Unigram with bytes", "BPE with <unk>"]
KINDS += ["BPE with ends of words"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_gives_the_ids_of_the_reference(kind: str) -> None:
    tokenizer = trained(kind.removesuffix(" with bytes"))
    tokenizer = with_byte_fallback(tokenizer) if kind == "Unigram with bytes" else tokenizer
    memo, reference = memo_and_reference(tokenizer)
    texts = [*TRAINING_TEXTS, *adversarial_texts(["<unk>"])]
    compare_tokens("memo", texts, memo.encode(texts), reference.encode(texts))
